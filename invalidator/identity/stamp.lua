-- Moves freshet's stamp from ARGV[3] to ARGV[4] on the server with the run_id ARGV[1] and the master_replid ARGV[2].
-- Returns 1 if it stands there now. Another server, or another stamp, is for a look to find: see stamp.go.
local function says(section, line)
  return string.find(redis.call('INFO', section), line, 1, true)
end
if not says('server', 'run_id:' .. ARGV[1]) or not says('replication', 'master_replid:' .. ARGV[2]) then
  return 0
end
local held = redis.call('GET', KEYS[1]) or ''
if held == ARGV[4] then
  return 1
end
if held ~= ARGV[3] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[4])
return 1
