-- field sets or removes fields of hashes.
-- KEYS: hash, marks of its fields, the generation of marks before.
-- ARGV, for all: fields that a generation holds. For each: field, and value if there is one.
--- several keys
if op == 'hset' and now <= last then
  local from = 1
  while from <= n do -- as many fields of one hash as there are next to each other
    local key, marks = KEYS[3 * from - 2], KEYS[3 * from - 1]
    local fields = {}
    while KEYS[3 * (from + #fields) - 2] == key do fields[#fields + 1] = ARGV[9 + (from + #fields - 1) * words] end
    if not fields[2] then break end -- one is done sooner below
    local have = redis.pcall('HMGET', marks, unpack(fields))
    local noted, values = {}, {}
    for i, field in ipairs(fields) do
      local of = 8 + (from + i - 2) * words
      if not confirms(have[i], ARGV[of]) then break end
      noted[2 * i - 1], noted[2 * i] = field, ARGV[of] .. ' 0 ' .. source
      values[2 * i - 1], values[2 * i] = field, ARGV[of + 2]
    end
    if not noted[1] or type(redis.pcall('HSET', marks, unpack(noted))) ~= 'number' then break end
    redis.call('PEXPIRE', marks, keep)
    if type(redis.pcall('HSET', key, unpack(values))) ~= 'number' then break end
    for at = from, from + #noted / 2 - 1 do done, replies[at] = at, 1 end
    if #noted < 2 * #fields then break end
    from = from + #fields
  end
end
--- one key
local key, marks, before = KEYS[3 * at - 2], KEYS[3 * at - 1], KEYS[3 * at]
local first = 8 + (at - 1) * words
local limit, version, field, value = tonumber(ARGV[7]), ARGV[first], ARGV[first + 1], ARGV[first + 2]
local moved = false
local mark = redis.pcall('HGET', marks, field)

if op == 'hset' and now <= last and confirms(mark, version)
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
