-- member adds members to sets or sorted sets, or removes them.
-- KEYS: set, marks of its members, the generation of marks before.
-- ARGV, for all: members that a generation holds. For each: member, and score if there is one.
--
-- The marks are versions: '=' .. member → the change that the member was last written for. Next to them stand
--   '<'  the mark of the whole: a change older than it may have been followed by a newer one that is not marked
--   '>'  the newest version in this generation
--   '|'  the newest version in the generation before, while that must be there
-- newer compares two versions of this epoch; none is older than any.
local function newer(a, b) return a and (not b or a > b) end
--- several keys
if (op == 'sadd' or op == 'zadd') and now <= last then
  local from, limit = 1, tonumber(ARGV[7])
  while from <= n do -- as many members of one set as there are next to each other
    local key, marks = KEYS[3 * from - 2], KEYS[3 * from - 1]
    local asked = {'<', '>', '|'}
    while KEYS[3 * (from + #asked) - 11] == key do
      asked[#asked + 1] = '=' .. ARGV[9 + (from + #asked - 4) * words]
    end
    if not asked[5] then break end -- one is done sooner below
    local have = redis.pcall('HMGET', marks, unpack(asked))
    local whole, top, room = have[1], have[2], 0
    if not top or redis.call('EXISTS', key) == 0 then break end
    if not have[3] then room = limit + 3 - redis.call('HLEN', marks) end
    local noted, members = {'>', top}, {}
    for i = 4, #asked do
      local of = 8 + (from + i - 5) * words
      local version, mine = ARGV[of], have[i]
      if not mine then room = room - 1 end
      if not confirms(whole, version) or newer(mine, version) or not mine and room < 0 then break end
      if newer(version, noted[2]) then noted[2] = version end
      noted[#noted + 1], noted[#noted + 2] = asked[i], version
      if op == 'zadd' then members[#members + 1] = ARGV[of + 2] end
      members[#members + 1] = ARGV[of + 1]
    end
    if not members[1] or type(redis.pcall('HSET', marks, unpack(noted))) ~= 'number' then break end
    redis.call('PEXPIRE', marks, keep)
    if type(redis.pcall(op == 'sadd' and 'SADD' or 'ZADD', key, unpack(members))) ~= 'number' then break end
    for at = from, from + #noted / 2 - 2 do done, replies[at] = at, 1 end
    if #noted / 2 + 2 < #asked then break end
    from = from + #asked - 3
  end
end
--- one key
local key, marks, before = KEYS[3 * at - 2], KEYS[3 * at - 1], KEYS[3 * at]
local first, limit = 8 + (at - 1) * words, tonumber(ARGV[7])
local version, member, score = ARGV[first], ARGV[first + 1], ARGV[first + 2]
local entry = '=' .. member
local have = redis.pcall('HMGET', marks, '<', '>', '|', entry)
local whole, top, oldtop, mine = have[1], have[2], have[3], have[4]

local adds = op == 'sadd' or op == 'zadd'
if (adds or op == 'srem' or op == 'zrem') and now <= last and confirms(whole, version) and not newer(mine, version)
  and (mine or not oldtop and redis.call('HLEN', marks) < limit + 3)
  and (not adds or redis.call('EXISTS', key) == 1)
  and type(redis.pcall('HSET', marks, '>', newer(top, version) and top or version, entry, version)) == 'number' then
  redis.call('PEXPIRE', marks, keep)
  local done
  if op == 'zadd' then done = redis.pcall(op, key, score, member) else done = redis.pcall(op, key, member) end
  if type(done) ~= 'number' then
    redis.call('UNLINK', key) -- it is of another type, or there is no memory
    return 3
  end
  if adds then return 1 end
  return (done == 1 or redis.call('EXISTS', key) == 1) and 2 or 4
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
  return adds and WRITTEN or REMOVED
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
