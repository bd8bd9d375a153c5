-- incr increments a counter of generations. One that is missing, or is no counter, begins at Redis' time in ms: no
-- generation comes twice as long as there are fewer than 1000 a second.
-- What Redis refuses is handed on, by redis.call: but for a counter that is gone nothing would have been done.
-- KEYS: counter.
local done = 1
if redis.call('EXISTS', KEYS[1]) == 1 then
  local n = redis.pcall('INCR', KEYS[1])
  if type(n) == 'number' then return 1 end
  redis.call('UNLINK', KEYS[1])
  if string.find(n.err, 'OOM', 1, true) then return 3 end
  done = 3
end
local t = redis.call('TIME')
redis.call('SET', KEYS[1], string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000)))
return done
