-- ripe.lua: the part of a body (behind guard.lua) that both delete.lua and intend.lua ask whether
-- the evidence against a candidate still holds. KEYS[6] is the hash of the rule's marks.
--
-- ripe(c): the mark is the one that the look saw, it is older than the grace, and no hold came
-- since the pass began.
local function ripe(c)
  if redis.call('HGET', KEYS[6], c.name) ~= c.mark or since ~= c.since then return false end
  local first = tonumber(string.match(c.mark, '^%d+'))
  return now - first >= c.grace
end
