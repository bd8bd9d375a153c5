-- How the scripts for several keys go on: how many keys there are, how many words each has, how many keys have been
-- settled, and with which replies.
--
-- Lines of each script settle as many keys as are of the common case, from the first one on, with fewer commands than
-- one by one. What is left is done as for one key. The sender sees to it that no key, field or member comes twice, and
-- that all versions are of one epoch.
local n, done, replies = #KEYS / EACH, 0, {}
local words = (#ARGV - 7) / n
--- the script's own lines stand here
if done == n then return replies end
local function one(at)
--- what is done to one key stands here
end
for at = done + 1, n do replies[at] = one(at) end
return replies
