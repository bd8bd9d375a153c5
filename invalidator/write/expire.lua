-- expire shortens the time that a key has left. (PEXPIRE LT does so from Redis 7 on.)
-- KEYS: key. ARGV: at most so many ms.
local left = redis.call('PTTL', KEYS[1])
if left == -2 then return 4 end
if left == -1 or left > tonumber(ARGV[1]) then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return 1
