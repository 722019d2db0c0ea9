-- tick.lua: one tick of the witness, by any contender (behind witness.lua).
-- KEYS[1] witness  KEYS[2] roster
-- ARGV[1] GAP ms   ARGV[2] WARM ms
-- Result: now ms, since ms, reason of the last doubt, its time ms, evicted_keys ('' : not offered),
--         evicted total, size of the roster. All but the last are strings.
local now, since, evicted = listen(KEYS[1], ARGV[1], ARGV[2])
local w = redis.call('HMGET', KEYS[1], 'reason', 'doubt', 'evicted_total')
local roster = redis.pcall('SCARD', KEYS[2])
return { text(now), text(since), w[1] or '', w[2] or '', evicted, w[3] or '0',
  type(roster) == 'number' and roster or 0 }
