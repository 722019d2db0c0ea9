-- tick.lua: one tick of the witness, by any contender (after witness.lua).
-- KEYS[1] witness  KEYS[2] roster  KEYS[3] never exists; see Tick  KEYS[4] contenders
-- KEYS[5] what a key of another type in the witness' place is called afterwards
-- ARGV[1] GAP ms   ARGV[2] GRACE ms  ARGV[3] this contender
-- ARGV[4] ms: if a tick with the same settings is younger than this, only read. 0: always tick.
-- Result: now ms, since ms, reason and time (ms) of the last hold, evicted total, size of the
--         roster, when a key was evicted (ms), the checks that are off

-- recent() -> as listen(), or nil if no younger tick makes this one unnecessary.
local function recent()
  local now, w = math.floor(server_us() / 1000), read(KEYS[1])
  if w.err then return end
  local since, last = count(w.since), count(w.last)
  if not since or not last or w.gap ~= ARGV[1] or w.grace ~= ARGV[2] then return end
  if since > now or last > now or now - last >= tonumber(ARGV[4]) then return end
  w.off = checks_off(w.server, w.refused, w.evicted_keys)
  return now, since, w
end

redis.pcall('SADD', KEYS[4], ARGV[3]) -- if refused, it is ranked once it is allowed
local now, since, w
if tonumber(ARGV[4]) > 0 then now, since, w = recent() end
if not w then now, since, w = listen(KEYS[1], ARGV[1], ARGV[2], KEYS[5]) end
local roster = redis.pcall('SCARD', KEYS[2])
return { text(now), text(since), brief(w.reason) or '', brief(w.hold) or '', brief(w.evicted_total) or '0',
  type(roster) == 'number' and roster or 0, brief(w.evicted_at) or '', w.off }
