-- stage puts a piece of a large hash into a temporary key, which never stays for long.
-- KEYS: temporary key. ARGV: ttl (ms), "1" for the first piece, field, value, …
if ARGV[2] == '1' then redis.call('UNLINK', KEYS[1]) end
redis.call('HSET', KEYS[1], unpack(ARGV, 3))
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
