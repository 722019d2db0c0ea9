-- findpage.lua: one page of the mitras who can take work now. Each page is a consistent snapshot; a
-- few hundred mitras fit on one page. It writes nothing, except that it removes members that are
-- too long for an id: each page with one would keep everybody waiting.
-- KEYS[1..4] see keys.lua  KEYS[5] the janitor's witness
-- ARGV[1] cursor  ARGV[2] page size  ARGV[3] the most sessions a mitra may have
-- ARGV[4] ms of silence after which a mitra is not counted; 0: silence does not matter
-- ARGV[5] how many mitras of the page to return, the least busy first; 0: all
-- Result: strings: { next cursor, sessions, ids, ... }, fewer sessions first, the ids one per
--   line: a single string costs a quarter of a list; and '-1' with the number of members removed.
--   Or the error UNSEEDED, also if there are more members than a caller has memory for.
-- Most of the work is done here, so it does as little as it can per mitra: see start in heard.lua
-- for the strings that look like numbers.
if not whole() or redis.call('SCARD', online) > 250000 then
  return redis.error_reply('UNSEEDED the mirror is not whole')
end
local now, most, stale, limit = nowms(), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local cutoff = stale > 0 and listened(KEYS[5], now) >= stale and iso(now - stale)
local latest = cutoff and iso(now + ahead) -- most malformed values sort after this or before cutoff
local page = redis.call('SSCAN', online, ARGV[1], 'COUNT', ARGV[2])
local ids, before_capacity, before_heartbeat = page[2], capacity(''), heartbeat('')
local free, sizes, busiest, removed = {}, {}, 0, 0 -- free: lists of ids by number of sessions
local count = { [''] = 0 } -- numbers by text; a mitra without sessions has no key
local pcall = redis.pcall
for _, id in ipairs(ids) do
  local long = #id > longest
  local text = long or pcall('GETRANGE', before_capacity .. id, '0', '9')
  local has = count[text]
  if not has then
    -- A value that is not a number counts as full.
    has = type(text) == 'string' and #text < 10 and string.find(text, '^%d+$') and tonumber(text) or most
    count[text] = has
  end
  if long then
    if pcall('SREM', online, id) == 1 then removed = removed + 1 end
  elseif has < most then
    local at = cutoff and pcall('GETRANGE', before_heartbeat .. id, '0', '24') or ''
    if not cutoff or type(at) == 'string' and at >= cutoff and at <= latest or excused(id, now, stale) then
      local size = sizes[has] or 0
      if size == 0 then free[has], busiest = {}, math.max(busiest, has) end
      free[has][size + 1], sizes[has] = id, size + 1
    end
  end
end
local out, left = { page[1] }, limit > 0 and limit or #ids
for n = 0, busiest do
  if free[n] and left > 0 then
    out[#out + 1], out[#out + 2] = tostring(n), table.concat(free[n], '\n', 1, math.min(sizes[n], left))
    left = left - sizes[n]
  end
end
if removed > 0 then out[#out + 1], out[#out + 2] = '-1', tostring(removed) end
return out
