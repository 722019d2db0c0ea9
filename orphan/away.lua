-- away.lua: (after same.lua) moves one key or member aside on its own server, in one step with the
-- comparison of all that this server has answered. A key that was moved before is known by its new
-- name, so each counts once, even after a crash.
-- KEYS[1] the key  KEYS[2] its new name, on this server  KEYS[3..] keys that are read
-- ARGV[1] the last ms, by this server's clock, at which the look counts
-- ARGV[2] its expiry in the new place (ms), in case nobody settles it
-- ARGV[3] the server's run id
-- ARGV[4] ZREM, SREM or HDEL, which removes a member; '': the key goes  ARGV[5] the member
-- ARGV[6..] observations: see all_same
-- Result: 1 moved, now or already; 0 changed since the look; -1 too late
if redis.call('EXISTS', KEYS[2]) == 1 then return 1 end
local time, info = redis.call('TIME'), redis.pcall('INFO', 'server')
if tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000) > tonumber(ARGV[1]) then return -1 end
local life = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
if life ~= ARGV[3] or not all_same(6) then return 0 end

-- may(command, key, ...) raises what this user may not do, before anything is done.
local function may(...)
  if redis.acl_check_cmd and not redis.acl_check_cmd(...) then
    error('NOPERM: this user has no permissions to run ' .. (...) .. ' on ' .. select(2, ...) .. ': nothing deleted', 0)
  end
end
if ARGV[4] == '' then
  may('RENAME', KEYS[1], KEYS[2])
  may('PEXPIRE', KEYS[2], ARGV[2])
  redis.call('RENAME', KEYS[1], KEYS[2])
  redis.call('PEXPIRE', KEYS[2], ARGV[2])
  return 1
end
local command, name = ARGV[4], ARGV[5]
may(command, KEYS[1], name)
local value = '1'
if command == 'ZREM' then value = redis.call('ZSCORE', KEYS[1], name) end
if command == 'HDEL' then value = redis.call('HGET', KEYS[1], name) end
redis.call('SET', KEYS[2], value, 'PX', ARGV[2])
redis.call(command, KEYS[1], name)
return 1
