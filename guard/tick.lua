-- tick.lua: one tick of the witness, by any contender (behind witness.lua).
-- KEYS[1] witness  KEYS[2] roster  KEYS[3] never exists; see Tick
-- ARGV[1] GAP ms   ARGV[2] GRACE ms
-- Result: now ms, since ms, reason of the last hold, its time ms, 1 | 0 evicted_keys is offered,
--         evicted total, size of the roster, ms that must pass from since on, 1 | 0 the run id is,
--         1 | 0 the count of clients turned away is.
local _, _, _, w = listen(KEYS[1], ARGV[1], ARGV[2])
local roster = redis.pcall('SCARD', KEYS[2])
return { w[2], w[1], w[11] or '', w[12] or '', w[9] and 1 or 0, w[10] or '0',
  type(roster) == 'number' and roster or 0, w[5], w[6] and 1 or 0, w[15] and 1 or 0 }
