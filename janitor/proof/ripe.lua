-- ripe.lua: the part of a body (after guard.lua) that checks that a mark still proves something.
-- KEYS[6] the marks  KEYS[7] the state
--
-- ripe(c): the mark is the one that the look saw, its chain goes on, it is older than the grace,
-- and the look is recent. c is Proof's JSON, in ms of this server's clock:
--   name, mark, chain
--   grace    how long the thing must have been condemned
--   since    start of the witness's listening when the pass began
--   looked   when the last look began
--   expires  how long that look counts
local function ripe(c)
  if redis.call('HGET', KEYS[6], c.name) ~= c.mark or redis.call('HGET', KEYS[7], 'chain') ~= c.chain then return false end
  local first = tonumber(string.match(c.mark, '^%d+'))
  return since == c.since and now >= c.looked and now - c.looked <= c.expires and now - first >= c.grace
end
