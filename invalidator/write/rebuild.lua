-- rebuild writes, replaces or removes whole keys.
-- KEYS: key, companion; for swap the temporary key as well.
-- ARGV, for all: ttl of the values (ms, 0: forever; "": each has its own, as its last word). For each:
--   set, remove   the value, or the negative entry
--   hash          field, value, …
--   swap          how many fields the temporary key must have
--   drop, forget, purge, yield  nothing
--- several keys
if op == 'set' and now <= last then
  local companions, values, mark = {}, {}, ' 0 ' .. source
  for at = 1, n do companions[at] = KEYS[2 * at] end
  local marks = redis.pcall('MGET', unpack(companions))
  local of = 8
  for at = 1, n do
    local version, ttl = ARGV[of], ARGV[7]
    if not confirms(marks[at], version)
      or redis.pcall('SET', companions[at], version .. mark, 'PX', keep).err then break end
    if ttl == '0' then
      values[2 * at - 1], values[2 * at] = KEYS[2 * at - 1], ARGV[of + 1]
    else
      if ttl == '' then ttl = ARGV[of + 2] end
      if redis.pcall('SET', KEYS[2 * at - 1], ARGV[of + 1], 'PX', ttl).err then break end
    end
    done, replies[at], of = at, 1, of + words
  end
  if values[1] and redis.pcall('MSET', unpack(values)).err then done = 0 end
end
--- one key
local key, companion = KEYS[2 * at - 1], KEYS[2 * at]
local temporary = op == 'swap' and KEYS[3]
local first, beyond = 8 + (at - 1) * words, 7 + at * words
local version, value, ttl = ARGV[first], ARGV[first + 1], ARGV[7]
if ttl == '' then ttl, beyond = ARGV[beyond], beyond - 1 end
local forever = ttl == '0'
local mark = redis.pcall('GET', companion)

if op == 'set' and now <= last and confirms(mark, version)
  and not redis.pcall('SET', companion, version .. ' 0 ' .. source, 'PX', keep).err then
  local done
  if forever then done = redis.pcall('SET', key, value) else done = redis.pcall('SET', key, value, 'PX', ttl) end
  if not done.err then return 1 end
elseif op == 'forget' and not mark then
  redis.call('UNLINK', key)
  return 3
end
--- guard.lua stands here

local function put(mark)
  return redis.pcall('SET', companion, mark, 'PX', keep)
end

-- note leaves the mark. Where it cannot be written (no memory), none may be left: it would confirm older values.
local function note(mark)
  if failed(put(mark)) then redis.call('UNLINK', companion) end
end

local function absent() return redis.call('EXISTS', key) == 0 end

local write = {}

function write.set()
  if forever then return redis.pcall('SET', key, value) end
  return redis.pcall('SET', key, value, 'PX', ttl)
end
write.remove = write.set

function write.hash()
  redis.call('UNLINK', key)
  local done = redis.pcall('HSET', key, unpack(ARGV, first + 1, beyond))
  if not failed(done) and not forever then redis.call('PEXPIRE', key, ttl) end
  return done
end

-- Half of the temporary key may have been lost: it is never swapped in then.
function write.swap()
  if redis.pcall('HLEN', temporary) ~= tonumber(value) then return {err = 'incomplete'} end
  redis.call('UNLINK', key)
  redis.call('RENAME', temporary, key)
  if forever then return redis.call('PERSIST', key) end
  return redis.call('PEXPIRE', key, ttl)
end

function write.drop() return redis.call('UNLINK', key) end

if forgets(mark) then
  redis.call('UNLINK', key)
  local left = forget(mark)
  if left == true then
    redis.call('UNLINK', companion)
  elseif left then
    note(left)
  end
  if temporary then redis.call('UNLINK', temporary) end
  return FORGOTTEN
end

local good, left = judge(mark, absent)
local done = FORGOTTEN
if good == nil then
  done = OLDER
elseif op == 'drop' then
  redis.call('UNLINK', key)
  if left then note(left) end
  done = pending or REMOVED
elseif good and not failed(put(left)) and not failed(write[op]()) then
  done = op == 'remove' and REMOVED or WRITTEN
else
  redis.call('UNLINK', key)
  if left then note(left) end
  done = pending or FORGOTTEN
end
if temporary then redis.call('UNLINK', temporary) end
return done
