-- expire shortens the time that a key has left. (PEXPIRE LT does so from Redis 7 on.)
-- It always asks Redis to write: a replica refuses that, and must not answer for a key that only its master has.
-- KEYS: key. ARGV: at most so many ms.
local left, most = redis.call('PTTL', KEYS[1]), ARGV[1]
if left >= 0 and left < tonumber(most) then most = left end
return redis.call('PEXPIRE', KEYS[1], most) == 1 and 1 or 4
