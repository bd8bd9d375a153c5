-- field sets or removes one field of a hash.
-- KEYS: hash, marks of its fields, the generation of marks before.
-- ARGV after the guard's: fields that a generation holds, field, value.
local key, marks, before = KEYS[1], KEYS[2], KEYS[3]
local limit, field, value = tonumber(ARGV[8]), ARGV[9], ARGV[10]
local moved = false
local mark = redis.pcall('HGET', marks, field)

if op == 'hset' and now <= last and confirms(mark)
  and type(redis.pcall('HSET', marks, field, version .. ' 0 ' .. source)) == 'number' then
  redis.call('PEXPIRE', marks, keep)
  if type(redis.pcall('HSET', key, field, value)) == 'number' then return 1 end
end
--- guard.lua stands here

-- A field has its mark in one of the generations only. Were an older one left in the generation before, it would confirm
-- an older value as soon as Redis evicts the younger generation.

-- note leaves the mark, or none where it cannot be written: one that is not there confirms nothing.
local function note(mark)
  if redis.call('HEXISTS', marks, field) == 0 and redis.call('HLEN', marks) >= limit then
    redis.call('UNLINK', before)
    redis.call('RENAME', marks, before)
  end
  local done = redis.pcall('HSET', marks, field, mark)
  if failed(done) then
    redis.call('UNLINK', marks, before)
    return false
  end
  if moved then redis.call('HDEL', before, field) end
  redis.call('PEXPIRE', marks, keep)
  return true
end

-- remove takes the field away, and the whole key if it is no hash.
local function remove()
  if failed(redis.pcall('HDEL', key, field)) then redis.call('UNLINK', key) end
end

local function absent() return redis.pcall('HEXISTS', key, field) == 0 end

if failed(mark) then
  redis.call('UNLINK', marks)
  mark = false
end
if not mark then
  mark = redis.pcall('HGET', before, field)
  if failed(mark) then mark = false end
  moved = mark
end

if forgets(mark) then
  remove()
  local left = forget(mark)
  if left == true then
    redis.call('HDEL', marks, field)
    redis.call('HDEL', before, field)
  elseif left then
    note(left)
  end
  return FORGOTTEN
end

local good, left = judge(mark, absent)
if good == nil then return OLDER end
if op == 'hdel' then
  remove()
  if left then note(left) end
  return pending or REMOVED
end
if good and note(left) then
  if not failed(redis.pcall('HSET', key, field, value)) then return WRITTEN end
  redis.call('UNLINK', key)
  return FORGOTTEN
end
remove()
if not good and left then note(left) end
return pending or FORGOTTEN
