-- beats.lua: one page of the online mitras, with their heartbeats. Read-only.
-- KEYS[1..4] see keys.lua  KEYS[5] the janitor's witness
-- ARGV[1] cursor  ARGV[2] page size  ARGV[3] ms: only those who have been silent for longer, with
--   their versions; 0: all  ARGV[4] ms of silence that is only overdue
-- Result: strings: { next cursor, now (ms), listened (ms), whole 0|1, read, unreadable, overdue or
--   silent, id, version or '', heartbeat, ... }
local now, least = nowms(), tonumber(ARGV[3])
local before, overdue, latest = least > 0 and iso(now - least) or '~', iso(now - ARGV[4]), iso(now + ahead)
local page = redis.call('SSCAN', online, ARGV[1], 'COUNT', ARGV[2])
local unreadable, late = 0, 0
local function text(n) return string.format('%.0f', n) end
local out = { page[1], text(now), text(listened(KEYS[5], now)), whole() and '1' or '0', text(#page[2]), '0', '0' }
for _, id in ipairs(page[2]) do
  local at, bad = heard(id, latest)
  if bad or #id > longest then
    unreadable = unreadable + 1
  elseif least == 0 or at < overdue and not excused(id, now, least) then
    late = late + 1
    local is = least > 0 and redis.call('HSTRLEN', version, id) < 17 and redis.call('HGET', version, id)
    if at < before then out[#out + 1], out[#out + 2], out[#out + 3] = id, is or '', at end
  end
end
out[6], out[7] = text(unreadable), text(late)
return out
