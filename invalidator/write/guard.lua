-- The guard: what decides in all other cases, in the scripts that write values. What is above it is in head.lua.
local OLDER, WRITTEN, REMOVED, FORGOTTEN, ABSENT = 0, 1, 2, 3, 4
local window, single, begun = tonumber(ARGV[3]), ARGV[4] == '1', tonumber(ARGV[4])

local function text(v, since)
  return v .. ' ' .. string.format('%.0f', since) .. ' ' .. source
end

-- relate compares a mark with the change: 'none' (no mark, or of another source: nothing is known), 'later' (the mark
-- is of an earlier epoch: the change is of a newer history), 'former' (the change is of a history that is over), and
-- within one epoch -1, 0 or 1 as the mark is older, the same, or newer; then the mark's version and since.
local function relate(mark)
  if type(mark) ~= 'string' then return 'none' end
  local v, since, s = string.match(mark, '^(%d+) (%d+) (.*)$')
  if s ~= source then return 'none' end
  if string.sub(v, 1, #epoch) ~= epoch then return v < version and 'later' or 'former' end
  return v == version and 0 or v < version and -1 or 1, v, tonumber(since)
end

-- forgets says whether the action only removes: because it is meant to (forget, purge, yield), or because it was on its
-- way for so long that it may have been overtaken. Forget and purge always remove. If the mark says that a newer change has been here,
-- nothing is left to remove for the others: that change has a final action of its own.
local function forgets(mark)
  return op == 'forget' or op == 'purge' or (op == 'yield' or now > last) and relate(mark) ~= 1
end

-- pending is set where a mark is left that does not confirm: to when it was begun, which is what the script replies then.
local pending

-- confirm returns the since of a mark that is written for this change: 0 if it confirms, from now on or already.
local function confirm(since)
  if since <= begun then return 0 end
  if now < since then since = now end
  if now - since >= window then return 0 end
  pending = since
  return since
end

-- judge says whether the change may be written over what the mark stands for, and the mark to be left: none if it is
-- to stay. fresh is called where nothing is marked; it says whether nothing is there either.
local function judge(mark, fresh)
  local o, v, since = relate(mark)
  if o == 'none' or o == 'later' then
    if single and o == 'none' and not mark and fresh() then return true, text(version, 0) end
    pending = now
    return false, text(version, pending)
  end
  if o == 'former' then return false end
  if o == 1 then return nil end
  since = confirm(since)
  return since == 0, text(version, since)
end

-- forget returns the mark to be left by a change that only removes: true if none may be left, nil if it stays. What is
-- done again, or named, leaves the mark at its version, for its own may be that of another key: changes of this key that are not
-- finished would remove nothing then. The mark confirms only once it is old enough again.
local function forget(mark)
  local o, v, since = relate(mark)
  if not mark or o == 'former' or o == 1 then return nil end
  if o == 'none' or o == 'later' then return true end
  if op == 'yield' or op == 'purge' then return text(v, now) end
  return text(version, since)
end

-- failed says whether a pcall was refused.
local function failed(reply)
  return type(reply) == 'table' and reply.err ~= nil
end
