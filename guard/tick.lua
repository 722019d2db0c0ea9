-- tick.lua: one tick of the witness, by any contender (after witness.lua).
-- KEYS[1] witness  KEYS[2] roster  KEYS[3] never exists; see Tick  KEYS[4] contenders
-- KEYS[5] what a key of another type in the witness' place is called afterwards
-- ARGV[1] GAP ms   ARGV[2] GRACE ms  ARGV[3] this contender
-- ARGV[4] ms: if a tick with the same settings is younger than this, only read. 0: always tick.
-- Result: now ms, since ms, reason and time (ms) of the last hold, evicted total, size of the
--         roster, ms that must pass after since, 1 | 0 the run id can be read, 1 | 0 the count of
--         clients turned away can be read.

-- recorded() returns w as listen() does, or nil if no younger tick makes this one unnecessary.
local function recorded()
  local now = math.floor(server_us() / 1000)
  local w = redis.pcall('HMGET', KEYS[1], 'since', 'last', 'largest', 'gap', 'grace', 'server',
    'evicted_total', 'reason', 'hold', 'refused')
  if w.err then return end
  local since, last = count(w[1]), count(w[2])
  if not since or not last or not count(w[3]) or w[4] ~= ARGV[1] or w[5] ~= ARGV[2] then return end
  if since > now or last > now or now - last >= tonumber(ARGV[4]) then return end
  return { w[1], text(now), [5] = w[3], [10] = brief(w[7]), [11] = brief(w[8]), [12] = brief(w[9]), id = w[6], refused = w[10] }
end

redis.pcall('SADD', KEYS[4], ARGV[3]) -- if refused, it is ranked once it is allowed
local w = tonumber(ARGV[4]) > 0 and recorded()
if not w then
  local _
  _, _, _, w = listen(KEYS[1], ARGV[1], ARGV[2], KEYS[5])
end
local roster = redis.pcall('SCARD', KEYS[2])
return { w[2], w[1], w[11] or '', w[12] or '', w[10] or '0',
  type(roster) == 'number' and roster or 0, w[5], w.id and 1 or 0, w.refused and 1 or 0 }
