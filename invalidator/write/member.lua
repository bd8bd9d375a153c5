-- member adds or removes one member of a set or sorted set.
-- KEYS: set, marks of its members, the generation of marks before.
-- ARGV after the guard's: members that a generation holds, member, score.
--
-- The marks are versions: '=' .. member → the change that the member was last written for. Next to them stand
--   '<'  the mark of the whole: a change older than it may have been followed by a newer one that is not marked
--   '>'  the newest version in this generation
--   '|'  the newest version in the generation before, while that must be there
local key, marks, before = KEYS[1], KEYS[2], KEYS[3]
local limit, member, score = tonumber(ARGV[8]), ARGV[9], ARGV[10]
local entry = '=' .. member
local have = redis.pcall('HMGET', marks, '<', '>', '|', entry)
local whole, top, oldtop, mine = have[1], have[2], have[3], have[4]

-- newer compares two versions of this epoch; none is older than any.
local function newer(a, b) return a and (not b or a > b) end

if (op == 'sadd' or op == 'zadd') and now <= last and confirms(whole) and not newer(mine, version)
  and (mine or not oldtop and redis.call('HLEN', marks) < limit + 3)
  and redis.call('EXISTS', key) == 1
  and type(redis.pcall('HSET', marks, '>', newer(top, version) and top or version, entry, version)) == 'number' then
  redis.call('PEXPIRE', marks, keep)
  local done
  if op == 'sadd' then done = redis.pcall('SADD', key, member) else done = redis.pcall('ZADD', key, score, member) end
  if type(done) == 'number' then return 1 end
  redis.call('UNLINK', key) -- it is of another type, or there is no memory
  return 3
end
--- guard.lua stands here

local commands = {
  sadd = function() return redis.pcall('SADD', key, member) end,
  srem = function() return redis.pcall('SREM', key, member) end,
  zadd = function() return redis.pcall('ZADD', key, score, member) end,
  zrem = function() return redis.pcall('ZREM', key, member) end,
}

local function set(...)
  if failed(redis.pcall('HSET', marks, ...)) then
    redis.call('UNLINK', marks, before)
    return false
  end
  redis.call('PEXPIRE', marks, keep)
  return true
end

-- begin forgets all marks, and begins with this change.
local function begin(since)
  redis.call('UNLINK', marks, before)
  return set('<', text(version, since), '>', version, entry, version)
end

-- apply does the action, where there is a set to do it to.
local function apply()
  if redis.call('EXISTS', key) == 0 then return ABSENT end
  if failed(commands[op]()) then
    redis.call('UNLINK', key)
    return FORGOTTEN
  end
  return (op == 'sadd' or op == 'zadd') and WRITTEN or REMOVED
end

local function doubt()
  local had = redis.call('UNLINK', key)
  return pending or had == 1 and FORGOTTEN or ABSENT
end

local o, floor, since = relate(whole)

local overtaken = type(o) == 'number' and newer(mine, version)
if op == 'forget' or op == 'purge' or (op == 'yield' or now > last) and not overtaken then
  redis.call('UNLINK', key)
  if o == 'none' or o == 'later' then
    redis.call('UNLINK', marks, before)
  elseif o == -1 then
    set('<', text(version, since))
  end
  return FORGOTTEN
end

if o == 'former' then return doubt() end
if o == 'none' or o == 'later' then
  if single and not whole and redis.call('EXISTS', key) == 0 then
    begin(0)
    return ABSENT
  end
  pending = now
  begin(pending)
  return doubt()
end

-- The generation before has its own life: what it held is lost with it, so the floor rises over that.
if oldtop then
  if not mine then mine = redis.pcall('HGET', before, entry) end
  if failed(mine) then mine = false end
  if not mine and redis.call('EXISTS', before) == 0 then
    if newer(oldtop, floor) then floor = oldtop end
    oldtop = false
    redis.call('HDEL', marks, '|')
    if not set('<', text(floor, since)) then return doubt() end
  end
end

if newer(mine, version) then return OLDER end
if newer(floor, version) then return doubt() end

-- Of changes before its own a sender knows nothing: where it confirms marks that it has begun, they stay below the floor.
local own = since ~= 0 and since <= begun
since = confirm(since)
local good = since == 0
if own or not good then floor = version end

if have[4] == false and redis.call('HLEN', marks) >= limit + 3 then
  if newer(oldtop, floor) then floor = oldtop end
  redis.call('UNLINK', before)
  redis.call('RENAME', marks, before)
  redis.call('PEXPIRE', before, keep)
  oldtop, top = top, false
  if not set('|', oldtop) then return doubt() end
end
if not newer(top, version) then top = version end
if not set('<', text(floor, since), '>', top, entry, version) or not good then return doubt() end
return apply()
