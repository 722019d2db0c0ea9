-- findpage.lua: one page of those who can take work now. Reads only. Each page is seen in one
-- instant; a few hundred mitras are one page.
-- KEYS[1..5] see keys.lua  KEYS[6] the janitor's witness
-- ARGV[1] cursor  ARGV[2] size of the page  ARGV[3] how many sessions a mitra may have
-- ARGV[4] ms of silence after which a mitra is not counted; 0: silence does not matter
-- ARGV[5] how many of the page are wanted, the least busy first; 0: all
-- Result: { next cursor, sessions, ids, ... }, fewer sessions first, the ids one a line: one text
-- costs a quarter of a list. Or the error UNSEEDED.
-- Per mitra it does as little as it can: most of the work is done here.
if redis.call('EXISTS', seeded) == 0 then return redis.error_reply('UNSEEDED the mirror is not whole') end
local now, most, stale, limit = nowms(), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local cutoff = stale > 0 and listened(KEYS[6], now) >= stale and iso(now - stale)
local page = redis.call('SSCAN', online, ARGV[1], 'COUNT', ARGV[2])
local ids, before_capacity, before_heartbeat = page[2], capacity(''), heartbeat('')
local free, sizes, busiest = {}, {}, 0 -- free: lists of ids, by their sessions
local count = { [false] = 0 } -- what a text says; none is stored of a mitra without sessions
for first = 1, #ids, 1000 do -- unpack ends below 8,000
  local last = math.min(first + 999, #ids)
  local sessions, beats = {}, {}
  for i = first, last do
    local id = ids[i]
    sessions[i - first + 1], beats[i - first + 1] = before_capacity .. id, before_heartbeat .. id
  end
  local off = redis.call('SMISMEMBER', deactivated, unpack(ids, first, last))
  sessions = redis.call('MGET', unpack(sessions))
  beats = cutoff and redis.call('MGET', unpack(beats))
  for i = 1, #off do
    local n = count[sessions[i]]
    if not n then
      n = math.max(0, math.floor(tonumber(sessions[i]) or most)) -- what cannot be read is full
      count[sessions[i]] = n
    end
    if n < most and off[i] == 0 and (not cutoff or (beats[i] or '') >= cutoff) then
      local size = sizes[n] or 0
      if size == 0 then free[n], busiest = {}, math.max(busiest, n) end
      free[n][size + 1], sizes[n] = ids[first + i - 1], size + 1
    end
  end
end
local out, left = { page[1] }, limit > 0 and limit or #ids
for n = 0, busiest do
  if free[n] and left > 0 then
    out[#out + 1], out[#out + 2] = n, table.concat(free[n], '\n', 1, math.min(sizes[n], left))
    left = left - sizes[n]
  end
end
return out
