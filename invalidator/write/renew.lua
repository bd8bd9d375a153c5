-- renew holds a lock for longer, if it is still the token's.
-- KEYS: lock. ARGV: token, ttl (ms).
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
