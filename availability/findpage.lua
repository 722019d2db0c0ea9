-- findpage.lua: one page of those who can take work now. Reads only. Each page is seen in one
-- instant; a few hundred mitras are one page.
-- KEYS[1..5] see keys.lua  KEYS[6] the janitor's witness
-- ARGV[1] cursor  ARGV[2] size of the page  ARGV[3] how many sessions a mitra may have
-- ARGV[4] ms of silence after which a mitra is not counted; 0: silence does not matter
-- ARGV[5] how many of the page are wanted, the least busy first; 0: all
-- Result: { next cursor, id, sessions, ... }, or the error UNSEEDED.
if redis.call('EXISTS', seeded) == 0 then return redis.error_reply('UNSEEDED the mirror is not whole') end
local now, most, stale = nowms(), tonumber(ARGV[3]), tonumber(ARGV[4])
local cutoff = stale > 0 and listened(KEYS[6], now) >= stale and iso(now - stale) or ''
local page = redis.call('SSCAN', online, ARGV[1], 'COUNT', ARGV[2])
local ids, free, busiest = page[2], {}, 0 -- free: lists of ids, by their sessions
local limit = tonumber(ARGV[5])
for first = 1, #ids, 1000 do -- unpack ends below 8,000
  local last = math.min(first + 999, #ids)
  local sessions, beats = {}, {}
  for i = first, last do
    sessions[#sessions + 1], beats[#beats + 1] = capacity(ids[i]), heartbeat(ids[i])
  end
  local off = redis.call('SMISMEMBER', deactivated, unpack(ids, first, last))
  sessions, beats = redis.call('MGET', unpack(sessions)), redis.call('MGET', unpack(beats))
  for i = 1, #off do
    local n = math.max(0, math.floor(tonumber(sessions[i] or '0') or most)) -- what cannot be read is full
    if off[i] == 0 and n < most and (beats[i] or '') >= cutoff then
      free[n], busiest = free[n] or {}, math.max(busiest, n)
      table.insert(free[n], ids[first + i - 1])
    end
  end
end
local out = { page[1] }
for n = 0, busiest do
  for _, id in ipairs(free[n] or {}) do
    if limit > 0 and #out > 2 * limit then return out end
    out[#out + 1], out[#out + 2] = id, tostring(n)
  end
end
return out
