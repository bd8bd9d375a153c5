-- rebuild writes, replaces or removes a whole key.
-- KEYS: key, companion, for swap the temporary key.
-- ARGV after the guard's: ttl of the value (ms, 0: forever); then
--   set, remove   the value, or the negative entry
--   hash          field, value, …
--   swap          how many fields the temporary key must have
--   drop, forget, purge, yield  nothing
local key, companion = KEYS[1], KEYS[2]
local ttl = tonumber(ARGV[8])
local mark = redis.pcall('GET', companion)

if op == 'set' and now <= last and confirms(mark)
  and not redis.pcall('SET', companion, version .. ' 0 ' .. source, 'PX', keep).err then
  local done
  if ttl > 0 then done = redis.pcall('SET', key, ARGV[9], 'PX', ARGV[8]) else done = redis.pcall('SET', key, ARGV[9]) end
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
  if ttl > 0 then return redis.pcall('SET', key, ARGV[9], 'PX', ARGV[8]) end
  return redis.pcall('SET', key, ARGV[9])
end
write.remove = write.set

function write.hash()
  redis.call('UNLINK', key)
  local done = redis.pcall('HSET', key, unpack(ARGV, 9))
  if not failed(done) and ttl > 0 then redis.call('PEXPIRE', key, ARGV[8]) end
  return done
end

-- Half of the temporary key may have been lost: it is never swapped in then.
function write.swap()
  if redis.pcall('HLEN', KEYS[3]) ~= tonumber(ARGV[9]) then return {err = 'incomplete'} end
  redis.call('UNLINK', key)
  redis.call('RENAME', KEYS[3], key)
  if ttl > 0 then return redis.call('PEXPIRE', key, ARGV[8]) end
  return redis.call('PERSIST', key)
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
  if KEYS[3] then redis.call('UNLINK', KEYS[3]) end
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
if op == 'swap' then redis.call('UNLINK', KEYS[3]) end
return done
