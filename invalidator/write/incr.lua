-- incr raises a counter of generations to Redis' time in ms, or by one if it is there already: no generation comes twice
-- as long as there are fewer than 1000 a second. That is so also if the counter is an older one, in data of before or on
-- a replica that has been promoted: a reader may know a generation that it had later, and store under it what it read
-- then. One that is missing, or is no counter, begins at that time.
-- What Redis refuses is handed on, by redis.call: but for a counter that is gone nothing would have been done.
-- KEYS: counter.
local done = 1
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
if redis.call('EXISTS', KEYS[1]) == 1 then
  local n = redis.pcall('INCR', KEYS[1])
  if type(n) == 'number' then
    if n < now then redis.call('SET', KEYS[1], string.format('%.0f', now), 'KEEPTTL') end
    return 1
  end
  redis.call('UNLINK', KEYS[1])
  if string.find(n.err, 'OOM', 1, true) then return 3 end
  done = 3
end
redis.call('SET', KEYS[1], string.format('%.0f', now))
return done
