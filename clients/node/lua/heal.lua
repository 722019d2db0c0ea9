-- server.lua: the server's clock and INFO. Prefix of every script that listens; nothing else in the
-- guard reads either.

local function server_us()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000000 + tonumber(t[2])
end

-- told(info, name, what) returns the value after `name:` in INFO, '' if there is none. Finding
-- plain text first is several times as fast as matching a pattern against the whole.
local function told(info, name, what)
  if type(info) ~= 'string' then return '' end -- refused
  local _, at = string.find(info, name .. ':')
  return at and string.match(info, what, at + 1) or ''
end

-- turned_away(stats) -> how many clients the server has turned away, '' if it does not report that:
-- connections refused (maxclients, protected mode), logins refused, connections cut to free memory.
-- Redis 7.0 counts refused logins only among its error replies. No other counter proves that an
-- owner may be unable to beat; see docs/faults.md.
local function turned_away(stats)
  local rejected = tonumber(told(stats, 'rejected_connections', '^%d+'))
  if not rejected then return '' end
  local logins = told(stats, 'acl_access_denied_auth', '^%d+')
  if logins == '' then
    local errors = redis.pcall('INFO', 'errorstats')
    if type(errors) ~= 'string' then return '' end
    logins = told(errors, 'errorstat_WRONGPASS', '^count=(%d+)')
  end
  local cut = tonumber(told(stats, 'evicted_clients', '^%d+')) or 0
  return string.format('%.0f', rejected + (tonumber(logins) or 0) + cut)
end

-- server(id, replication) -> run id, replication id, connections, commands, evicted_keys, clients
-- turned away; '' for anything that this client may not read or the server does not offer. The last
-- four are counters that only grow during one life of a server, except that CONFIG RESETSTAT resets
-- them.
--
-- id and replication are the previous answer, or false. INFO server costs three times as much as
-- INFO replication, so it is only read when the replication id cannot vouch for the server: a
-- master takes a new one when it starts, when it is promoted, and when it gets its first replica. A
-- replica has its master's.
local function server(id, replication)
  local repl, stats = redis.pcall('INFO', 'replication'), redis.pcall('INFO', 'stats')
  local now = told(repl, 'role', '^master') ~= '' and told(repl, 'master_replid', '^%w+') or ''
  if not id or now ~= replication then -- unknown ids are not stored
    id = told(redis.pcall('INFO', 'server'), 'run_id', '^%w+')
  end
  return id, now, told(stats, 'total_connections_received', '^%d+'),
    told(stats, 'total_commands_processed', '^%d+'), told(stats, 'evicted_keys', '^%d+'), turned_away(stats)
end
-- settings.lua: what owners report to the witness. Prefix of beat.lua, boot.lua and witness.lua.

-- Two days. No setting of ours is longer.
local most = 172800000

-- count(v) returns the number in a field of the witness, or nil if the witness cannot have written
-- it. To Lua "nan", "1e300" and "-5" are numbers too, and NaN compares as never held.
local function count(v) return v and #v < 16 and string.match(v, '^%d+$') and tonumber(v) or nil end

-- brief(v) returns the beginning of a field: anybody can write any number of bytes there, and what
-- a script returns has to fit into its caller's memory.
local function brief(v) return v and string.sub(v, 1, 64) end

-- larger(a, b): the larger of two GRACE, as the witness has them: strings, or false.
local function larger(a, b)
  a, b = count(a) or 0, count(b) or 0
  if a > most then a = 0 end
  if b > most then b = 0 end
  return string.format('%.0f', math.max(a, b))
end

-- boot_time(v, now) returns v if it can be the time in a boot token: µs, 16 digits, at most a year
-- ahead of now (ms). With the largest number on record, all later boots would get the same token.
local function boot_time(v, now)
  return v and #v == 16 and string.match(v, '^%d+$') and tonumber(v) <= (now + 366 * 86400000) * 1000 and v
end

-- tell_grace(key, grace, at, boot) records an owner's GRACE with each beat, since an owner need not
-- contend. If the witness has another one, grace becomes 0, which no fleet uses: the next listener
-- notices, and no other owner's beat hides it. It writes nothing until somebody listens. It returns
-- when entries may last have been lost, and when the registry was last emptied.
--
-- boot, if given, is the time in the owner's boot token, and raises the highest one on record;
-- until somebody listens, only if it is ahead of the clock.
local function tell_grace(key, grace, at, boot)
  local w = redis.pcall('HMGET', key, 'grace', 'largest', 'lost', 'boot', 'emptied')
  if boot and not w.err and boot > (boot_time(w[4], at) or '') and (w[1] or tonumber(boot) >= (at + 1) * 1000) then
    redis.pcall('HSET', key, 'boot', boot)
  end
  if not w.err and w[1] and w[1] ~= grace then -- what cannot be read is not overwritten
    redis.pcall('HSET', key, 'grace', '0', 'disagreed', at, 'largest', larger(w[2], larger(w[1], grace)))
  end
  return brief(w[3]) or '', w[5]
end

-- tell_gap(key, at) records a hold, and returns the new 'lost', for an owner that a Cluster refused
-- while its keys moved: its silence was not evidence. Listeners of an older version, or with all
-- keys on one side, were not refused and know nothing of it.
local function tell_gap(key, at)
  if type(redis.pcall('HGET', key, 'last')) ~= 'string' then return end -- nobody listens yet
  redis.pcall('HSET', key, 'since', at, 'hold', at, 'reason', 'gap', 'lost', at)
  return at
end
-- witness.lua: observes the server (after server.lua and settings.lua). Prefix of tick.lua,
-- guard.lua and an owner's heal.lua.
--
-- listen() stores that the server is awake, and returns since when it has been observed without a
-- hold. Every hold is one act: since = now, with its reason.
--
--   gap             the last tick is longer ago than GAP, lies in the future, or is missing
--   restarted       the server is another than at the last tick: its run id differs, or a counter
--                   that only grows has fallen (restart, promoted replica, CONFIG RESETSTAT)
--   redis_evicting  evicted_keys differs from the record; or this client cannot read a value that
--                   is on record: unreadable values never overwrite
--   redis_refusing  the server has turned clients away since the last tick (connections, logins):
--                   a live owner may be unable to beat
--   settings        GAP or GRACE differ from the last tick's, or from those of an owner that beat
--                   since. Nothing is deleted until the largest GRACE seen has passed since the
--                   fleet last disagreed
--
-- The witness is a hash. All its times are the server's, in ms:
--   since          observed without a hold since then
--   last           the last tick
--   gap, grace     settings of the last tick; grace 0: an owner's beat disagreed (settings.lua)
--   largest        the largest GRACE seen lately: the time without a hold before deletes
--   disagreed      the last time that two settings were seen
--   server, replication, connections, commands, evicted_keys, refused
--                  server()'s values at the last tick that could read them
--   hold, reason   the last hold
--   lost           when Redis may last have lost entries: a hold of reason gap, restarted or
--                  self_check, or an owner was about to write an entry and found no registry.
--                  Owners check their claims when it changes
--   mass_failure   the last hold of reason "mass_failure"
--   evicted_total  entries evicted, ever: the total kept beside the log
--   index_wrong    how often owners found that their reverse index had lost members
--   boot           the highest time in any boot token, µs: the next boot draws a higher one
--   emptied        when an owner's last release, or a sweep, emptied the registry
--   bye:<id>       instance <id> shut down in good order but left entries over

-- For how many times the largest GRACE settings are remembered after two were last seen. Each
-- contender ticks at least once per GAP.
local memory = 10

local function text(n) return string.format('%.0f', n) end

local function kind(key)
  local t = redis.call('TYPE', key)
  return type(t) == 'table' and t.ok or t
end

local function hold(key, now, reason)
  redis.call('HSET', key, 'since', text(now), 'hold', text(now), 'reason', reason)
end

-- fell(was, is) reports whether a counter that only grows has fallen.
local function fell(was, is) return was and is ~= '' and tonumber(is) < (tonumber(was) or 0) end

-- another(w, ...) compares server()'s values with the last tick's and returns the reason of a hold,
-- nil if all is well.
local function another(w, id, connections, commands, evicted, refused)
  if id ~= '' and w[6] ~= id then return 'restarted' end
  if fell(w[7], connections) or fell(w[8], commands) or fell(w[9], evicted) then return 'restarted' end
  if fell(w[15], refused) then return 'restarted' end
  if (w[6] and id == '') or (w[8] and commands == '') or (w[9] and evicted == '') or (w[15] and refused == '') then
    return 'redis_evicting'
  end
  if evicted ~= '' and w[9] ~= evicted then return 'redis_evicting' end
  if w[15] and refused ~= '' and w[15] ~= refused then return 'redis_refusing' end
end

local fields = { 'since', 'last', 'gap', 'grace', 'largest', 'server', 'connections', 'commands', 'evicted_keys',
  'evicted_total', 'reason', 'hold', 'disagreed', 'replication', 'refused', 'lost', 'boot', 'emptied', 'mass_failure',
  'index_wrong' }

-- The witness writes nothing longer, in bytes. Replicas read it again and again, so a longer value
-- is somebody's, and is deleted.
local longest = 64

-- listen(key, gap, grace, aside) -> now, since, need, w: deletes may begin need ms after since. A
-- key of another type may be somebody's, and is renamed to aside. Without that name, or if it is
-- taken, nothing is written, and this is a hold until a tick has done so. w holds, as strings or
-- false: [1] since, [2] now, [5] need, [6] run id, [9] evicted_keys, [10] evicted_total, [11]
-- reason and [12] time of the last hold, [15] clients turned away.
local function listen(key, gap, grace, aside)
  local now = math.floor(server_us() / 1000)
  local w = redis.pcall('HMGET', key, unpack(fields))
  if w.err then -- not a hash: it must neither wipe nor jam
    if kind(key) == 'hash' then error(w.err) end -- not allowed
    if not aside or redis.call('EXISTS', aside) == 1 then
      return now, now, tonumber(grace), { text(now), text(now), [5] = grace, [11] = 'gap' }
    end
    redis.call('RENAME', key, aside)
    w = {}
  end
  local too_long = {} -- '' is what no tick wrote either
  for i = 1, #fields do
    if w[i] and #w[i] > longest then too_long[#too_long + 1], w[i] = i, '' end
  end
  local id, replication, connections, commands, evicted, refused = server(w[6], w[14])
  local at = text(now)
  local set, n = { 'last', at }, 2
  local function put(i, field, value) -- unchanged fields are not written again
    if w[i] ~= value then
      set[n + 1], set[n + 2], w[i] = field, value, value
      n = n + 2
    end
  end

  local since, last, reason = count(w[1]), count(w[2]), nil
  w[2] = at
  if not since or not last or since > now or last > now or now - last > tonumber(gap) then
    reason = 'gap'
  else
    reason = another(w, id, connections, commands, evicted, refused)
  end
  local largest = tonumber(larger(w[5], w[4]))
  if (w[3] and w[3] ~= gap) or (w[4] and w[4] ~= grace) then
    reason = reason or 'settings'
    put(13, 'disagreed', at)
  end
  if reason then
    since = now
    put(1, 'since', at)
    put(12, 'hold', at)
    put(11, 'reason', reason)
    if reason == 'gap' or reason == 'restarted' then put(16, 'lost', at) end
  end
  -- A hold's own time does not age the memory: a jump of the clock must not make it forget.
  local need, disagreed = tonumber(grace), count(w[13])
  if disagreed and disagreed > now then -- otherwise it would be remembered for ever
    disagreed = now
    put(13, 'disagreed', at)
  end
  if disagreed and now - math.max(disagreed, since) <= memory * largest then
    need = math.max(need, largest)
  end
  put(3, 'gap', gap)
  put(4, 'grace', grace)
  put(5, 'largest', need == tonumber(grace) and grace or text(need))
  if id ~= '' then put(6, 'server', id) end
  if replication ~= '' then put(14, 'replication', replication) end
  if connections ~= '' then put(7, 'connections', connections) end
  if commands ~= '' then put(8, 'commands', commands) end
  if evicted ~= '' then put(9, 'evicted_keys', evicted) end
  if refused ~= '' then put(15, 'refused', refused) end
  -- The first write of every script that listens. Redis refuses it, and with it the script, when
  -- memory is full: if heartbeats cannot be written, a missing one must delete nothing.
  redis.call('HSET', key, unpack(set))
  for _, i in ipairs(too_long) do
    if w[i] == '' then redis.call('HDEL', key, fields[i]) end
  end
  -- HINCRBY behind the log record must not fail: a total that is no number starts anew.
  if w[10] and not (string.match(w[10], '^%d+$') and #w[10] < 16) then
    redis.call('HSET', key, 'evicted_total', '0')
    w[10] = '0'
  end
  w[11], w[12] = brief(w[11]), brief(w[12])
  return now, since, need, w
end
-- owner.lua: the prelude of every script with which an owner writes. It checks that this process is
-- still the newest life of its instance id.
--
-- A boot token is 26 digits, which compare as strings in any locale: the server's time in µs when
-- the process first reached it (16), then random (10). A higher token in the heartbeat ends the
-- script, a lower one is replaced.
--
-- KEYS[1] heartbeat  KEYS[2] roster  KEYS[3] index  KEYS[4] witness  KEYS[5] registry
-- ARGV[1] instance   ARGV[2] boot token  ARGV[3] heartbeat TTL ms  ARGV[4] '1': maintain the index
-- ARGV[5..] the script's own
-- Result: { 'SUPERSEDED' }, or the table built by reply().
local held = redis.pcall('GET', KEYS[1])
local token = type(held) == 'string' and string.match(held, '/(%d+)$')

local function server_ms()
  local t = redis.call('TIME')
  return string.format('%.0f', tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000))
end

-- A token a year ahead of the clock belongs to no boot; see boot_time in settings.lua.
if token and #token == 26 and token > ARGV[2] and
  tonumber(string.sub(token, 1, 16)) <= (server_ms() + 366 * 86400000) * 1000 then return { 'SUPERSEDED' } end

-- assert_life() is the first write of a script that writes entries: every entry gets its proof of
-- life in the same step (S5). When memory is full, SET is refused and with it the script. It
-- returns the server's time, ms.
local function assert_life()
  local ms = server_ms()
  redis.call('SET', KEYS[1], ms .. '/' .. ARGV[2], 'PX', ARGV[3])
  -- A roster of another type must not keep anybody from registering.
  redis.pcall('SADD', KEYS[2], ARGV[1])
  return ms
end

-- may(command, key, ...) returns whether this user may run a command. acl_check_cmd raises an error
-- for a renamed command, which nobody may run. Redis 6 and miniredis lack acl_check_cmd.
local function may(...)
  if not redis.acl_check_cmd then return true end
  local known, allowed = pcall(redis.acl_check_cmd, ...)
  return known and allowed
end

-- witness_says(field): the beginning of what the witness says, false if it does not: it is no hash,
-- or this user may not read it.
local function witness_says(field)
  local v = redis.pcall('HGET', KEYS[4], field)
  return type(v) == 'string' and string.sub(v, 1, 64)
end

-- found_gone() must run before a script writes its first entry. If the registry is missing, it
-- warns every owner through the witness: the entry that follows would hide the loss. If a release
-- or sweep recorded that it took the last entry out ('emptied'), nothing was lost. That record
-- counts once, and not if entries may have been lost since; a beat that finds a registry deletes
-- it. Without a witness the first tick will warn.
local exists -- 1: there is a registry now; nil: not checked
local function found_gone()
  exists = 1
  if redis.call('EXISTS', KEYS[5]) == 1 or not witness_says('last') then return end
  local emptied, lost = tonumber(witness_says('emptied') or ''), tonumber(witness_says('lost') or '')
  if emptied then redis.pcall('HDEL', KEYS[4], 'emptied') end
  if not emptied or emptied < (lost or 0) then redis.pcall('HSET', KEYS[4], 'lost', server_ms()) end
end

-- index(command, list, first) updates the reverse index with the IMEIs in list from first on, and
-- returns the number of members changed, nil if unknown. An index of another type must not fail a
-- registration; reply() reports it.
local function index(command, list, first)
  if ARGV[4] ~= '1' or not list[first] then return end
  local n = redis.pcall(command, KEYS[3], unpack(list, first))
  return type(n) == 'number' and n or nil
end

-- reply(count, foreign, lost) -> { 'OK', 1 if the own heartbeat was absent, size of the index, time
-- of the witness' last hold that may have lost entries, 1 if the registry is missing, count,
-- foreign }: in O(1), the signs that Redis lost something. count and foreign are the script's.
local function reply(count, foreign, lost)
  local size = redis.pcall('SCARD', KEYS[3])
  return { 'OK', token == ARGV[2] and 0 or 1, type(size) == 'number' and size or -1,
    lost or witness_says('lost') or '', 1 - (exists or redis.call('EXISTS', KEYS[5])), count or 0, foreign or {} }
end

-- word(id) encodes an id for a message; see words.go.
local function word(id)
  if id == '' then return '%' end
  if not string.find(id, '[%c%% ]') and string.sub(id, 1, 1) ~= '/' then return id end
  id = string.gsub(id, '[%c%% ]', function(c) return string.format('%%%02X', string.byte(c)) end)
  return (string.gsub(id, '^/', '%%2F'))
end

-- tell(found, list, first) notifies former owners of the devices that they lost, on the channels
-- named like their heartbeats. An owner that misses it notices at its next check.
-- found: the previous entries of the IMEIs in list, from first on.
local function tell(found, list, first)
  local me, moved = ARGV[1], {}
  for i = 1, #found do
    local was = found[i]
    if was and was ~= '' and was ~= me then
      local theirs = moved[was] or {}
      theirs[#theirs + 1] = word(list[first + i - 1])
      moved[was] = theirs
    end
  end
  local channels = string.sub(KEYS[1], 1, #KEYS[1] - #ARGV[1])
  for was, theirs in pairs(moved) do redis.pcall('PUBLISH', channels .. was, table.concat(theirs, ' ')) end
end
-- heal.lua: restores entries that their owner still holds (after guard.ListenLua and owner.lua). It
-- writes an entry only if it is absent, or names exactly the instance that the owner saw there.
-- That takes evidence against the instance: a fresh frame of the device, for which the caller
-- vouches, or, with KEYS[6..], its death by the guard's own conditions, checked here.
-- KEYS[6..] heartbeats of the instances that may be dead
-- ARGV[5..] pairs: IMEI, instance seen ('': none); with KEYS[6..] three more at the end: GAP ms,
--   GRACE ms, '1': this owner's beats have landed lately
-- Entries that name another instance leave the owner's index: they are not its own to be swept, and
-- the full scan is postponed only while indexes and entries are equally many.
-- Extra: number of entries restored, or -1 if none of KEYS[6..] is dead (nothing was read); foreign
-- entries as a flat list IMEI, instance.

-- may_listen(): if this user may not read the counters, an attempt would hold everybody's sweeps.
local function may_listen()
  return may('INFO', 'replication') and may('INFO', 'stats') and may('INFO', 'errorstats') and may('INFO', 'server')
end

-- find_dead() -> a table keyed by the instances that the guard would call dead, nil if none. Like
-- guard.lua it relies on a heartbeat's absence only while its own exists. The absence of its own
-- raises a hold only if its beats have landed; otherwise one owner that cannot beat would hold
-- everybody.
local function find_dead()
  local dead, any = {}, false
  for i = 6, #KEYS do
    if redis.call('EXISTS', KEYS[i]) == 0 then
      dead[string.sub(KEYS[i], #KEYS[1] - #ARGV[1] + 1)] = true
      any = true
    end
  end
  if not any or not may_listen() then return end -- all live: no need to listen
  local now, since, need = listen(KEYS[4], ARGV[#ARGV - 2], ARGV[#ARGV - 1])
  if now - since < need then return end
  if held then return dead end
  if ARGV[#ARGV] == '1' then
    hold(KEYS[4], now, 'self_check')
    redis.call('HSET', KEYS[4], 'lost', text(now))
  end
end

local dead, pairs_end = nil, #ARGV
if KEYS[6] then
  dead, pairs_end = find_dead(), #ARGV - 3
  if not dead then return reply(-1) end
end
assert_life()
local imeis = {}
for i = 5, pairs_end, 2 do imeis[(i - 3) / 2] = ARGV[i] end
local found = redis.call('HMGET', KEYS[5], unpack(imeis))
local me, ours, theirs, set, foreign, taken, from, n = ARGV[1], {}, {}, {}, {}, {}, {}, 0
for i = 1, #found do
  local imei, now, seen = imeis[i], found[i], ARGV[4 + 2 * i]
  if now == me then
    ours[#ours + 1] = imei
  elseif not now or now == '' or (now == seen and (not dead or dead[seen])) then -- '' names nobody
    n = n + 1
    set[2 * n - 1], set[2 * n] = imei, me
    taken[n], from[n] = imei, now or ''
  else
    theirs[#theirs + 1] = imei
    foreign[#foreign + 1] = imei
    foreign[#foreign + 1] = now
  end
end
if n > 0 then
  found_gone()
  redis.call('HSET', KEYS[5], unpack(set))
end
index('SADD', taken, 1)
-- If the index lacked standing entries, part of it was lost, perhaps more.
if (index('SADD', ours, 1) or 0) > 0 and witness_says('last') then
  redis.pcall('HINCRBY', KEYS[4], 'index_wrong', 1)
end
index('SREM', theirs, 1)
tell(from, taken, 1)
return reply(n, foreign)
