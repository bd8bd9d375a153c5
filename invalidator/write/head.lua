-- What the scripts that write values begin with: what they are asked for, and what time it is. Each script is atomic;
-- KEYS[1] is the key, the others are next to it in the same slot.
--
-- A mark says which change a value was last written for: "<version> <since> <source>". A version is made of digits, so
-- that the newer of two is the larger as text (Builder.ordered); Lua's own numbers end at 2^53. Since is 0 if the mark
-- confirms having seen all newer changes that were finished; else it was begun at that time (of Redis, in ms), and does
-- not confirm yet.
--
-- ARGV: what to do, version, source, window (ms), "1" if D is 0, so that no second action may follow, else by when a mark
-- was begun that the change may confirm (ms; "0": none may), how long marks are kept (ms), until when anything but
-- forgetting may take effect (ms). Times are Redis' own.
--
-- The first lines of a script settle the common case: a mark that confirms, and a newer change of the same source and
-- epoch that is in time. What follows would do the same, but its functions are made again in each call, and that takes
-- longer than all the rest.
local op, version, source, keep = ARGV[1], ARGV[2], ARGV[3], ARGV[6]
local last = tonumber(ARGV[7])
-- The first digit of a version says how many more than one its epoch has.
local epoch = string.sub(version, 1, string.byte(version) - 46)

-- Redis' time in ms. It may be set back, at a failover too.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- confirms says whether a mark confirms, and is of the same source and epoch as the change, and of no newer one.
local function confirms(mark)
  if type(mark) ~= 'string' then return false end
  local v, s = string.match(mark, '^(%d+) 0 (.*)$')
  return s == source and v <= version and string.sub(v, 1, #epoch) == epoch
end
