-- ripe.lua: the part of a body (after guard.lua) shared by delete.lua and intend.lua. It checks
-- that the evidence against a candidate still holds. KEYS[6] is the hash of the rule's marks.
--
-- ripe(c): the mark is the one that the look saw, it is older than the grace, and the look is
-- recent. c has, in ms of this server's clock:
--   name, mark
--   grace    how long the candidate must have been condemned
--   since    start of the witness's listening when the pass began, and when the mark was made
--   looked   when the last look began
--   expires  how long that look counts
-- The age of a mark alone does not reveal a hold: the clock may have gone back with it.

-- recent(c): there was no hold since the pass began, and the last look still counts.
local function recent(c)
  return since == c.since and now >= c.looked and now - c.looked <= c.expires
end

local function ripe(c)
  if redis.call('HGET', KEYS[6], c.name) ~= c.mark then return false end
  local first = tonumber(string.match(c.mark, '^%d+'))
  return recent(c) and now - first >= c.grace
end
