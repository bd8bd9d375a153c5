-- What the scripts that write values begin with: what they are asked for, and what time it is. Each script is atomic.
-- Each is there twice: for one key, and for several, to which it does the same one after the other (several.lua).
-- KEYS are each key and what is next to it in the same slot.
--
-- A mark says which change a value was last written for: "<version> <since> <source>". A version is made of digits, so
-- that the newer of two is the larger as text (Builder.ordered); Lua's own numbers end at 2^53. Since is 0 if the mark
-- confirms having seen all newer changes that were finished; else it was begun at that time (of Redis, in ms), and does
-- not confirm yet.
--
-- ARGV, for all keys: what to do, source, window (ms), "1" if D is 0, so that no second action may follow, and none was
-- refused, else by when a mark was begun that the change may confirm (ms; "0": none may), how long marks are kept (ms), until when anything but
-- forgetting may take effect (ms), and one more that each script has for itself. Times are Redis' own. Then for each key
-- its version, and what the script has for each.
--
-- The first lines of a script settle the common case: a mark that confirms, and a newer change of the same source and
-- epoch that is in time. What follows would do the same, but its functions are made again for each key, and that takes
-- longer than all the rest.
local redis, KEYS, ARGV = redis, KEYS, ARGV -- a global is looked up by its name, each time
local op, source, keep = ARGV[1], ARGV[2], ARGV[5]
local last = tonumber(ARGV[6])
-- The first digit of a version says how many more than one its epoch has.
local epoch = string.sub(ARGV[8], 1, string.byte(ARGV[8]) - 46)

-- Redis' time in ms. It may be set back, at a failover too.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- confirms says whether a mark confirms, and is of the same source and epoch as a change, and of no newer one. Of digits
-- that come neither before those of the epoch nor after a version of it, the first ones are the epoch's.
local match = string.match
local function confirms(mark, version)
  if type(mark) ~= 'string' then return false end
  local v, s = match(mark, '^(%d+) 0 (.*)$')
  return s == source and v <= version and v >= epoch
end
