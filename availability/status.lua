-- status.lua: everything the mirror knows about one mitra. Read-only.
-- KEYS[1..4] see keys.lua  KEYS[5] the janitor's witness
-- ARGV[1] id  ARGV[2] ms of silence that is too long; 0: silence does not matter
-- Result: { online 0|1, active 0|1, sessions, heartbeat, fresh 0|1, version }, {} for an unknown
--   mitra, or the errors UNSEEDED and UNREADABLE, which mean: ask the source.
if not whole() then return redis.error_reply('UNSEEDED the mirror is not whole') end
local id, stale, now = ARGV[1], tonumber(ARGV[2]), nowms()
local digits = redis.call('HSTRLEN', version, id)
if digits == 0 then return {} end
local number = digits < 17 and redis.call('HGET', version, id) or ''
local at, bad = heard(id, iso(now + ahead))
if bad then return redis.error_reply('UNREADABLE the heartbeat is no time') end
local sessions = start(capacity(id), '9')
if sessions == '' then sessions = '0' end
if mistyped(sessions) or #sessions > 9 or not string.find(sessions, '^%d+$') then
  return redis.error_reply('UNREADABLE the capacity is no number')
end
local judged = stale > 0 and listened(KEYS[5], now) >= stale
return {
  redis.call('SISMEMBER', online, id), 1 - redis.call('SISMEMBER', deactivated, id),
  tonumber(sessions), at, (judged and at < iso(now - stale) and not excused(id, now, stale)) and 0 or 1,
  number,
}
