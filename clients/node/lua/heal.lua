-- server.lua: what the server says of itself: its clock, and INFO. Not a script of its own: every
-- script that listens begins with it. Nothing else of the guard asks for either.

local function server_us()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000000 + tonumber(t[2])
end

-- told(info, name, what) is what INFO says behind `name:`, '' if it does not say it. A search for a
-- text without special characters is several times as fast as a pattern over the whole text.
local function told(info, name, what)
  if type(info) ~= 'string' then return '' end -- refused
  local _, at = string.find(info, name .. ':')
  return at and string.match(info, what, at + 1) or ''
end

-- turned_away(stats) -> how many clients the server has turned away, '' if it does not offer that:
-- connections refused (maxclients, protected mode), logins refused, and connections cut for want of
-- memory for clients. Redis 7.0 counts refused logins among its error replies alone. Nothing else
-- that a server counts proves that an owner may be unable to beat; docs/faults.md has the rest.
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
-- turned away. What this client may not read, or what the server does not offer, is ''. The last
-- four are counters that only grow in one life of a server, unless CONFIG RESETSTAT makes them
-- fall.
--
-- id and replication are what it answered before, or false. INFO server costs three times what INFO
-- replication does, so it is asked only if the other may not vouch for it: a master takes a new
-- replication id when it starts, when it is promoted, and when it gets its first replica. A replica
-- shares its master's.
local function server(id, replication)
  local repl, stats = redis.pcall('INFO', 'replication'), redis.pcall('INFO', 'stats')
  local now = told(repl, 'role', '^master') ~= '' and told(repl, 'master_replid', '^%w+') or ''
  if not id or now ~= replication then -- none is stored where none can be told
    id = told(redis.pcall('INFO', 'server'), 'run_id', '^%w+')
  end
  return id, now, told(stats, 'total_connections_received', '^%d+'),
    told(stats, 'total_commands_processed', '^%d+'), told(stats, 'evicted_keys', '^%d+'), turned_away(stats)
end
-- settings.lua: what owners tell the witness, and whether replicas' GRACE differs: the largest
-- counts. Not a script of its own: beat.lua, boot.lua and witness.lua stand behind it.

-- What is larger than two days is no setting of ours.
local most = 172800000

-- count(v) returns what a field of the witness holds, if the witness can have written it, else nil.
-- To Lua "nan", "1e300" and "-5" are numbers too, and a time that is none compares as never held.
local function count(v) return v and #v < 16 and string.match(v, '^%d+$') and tonumber(v) or nil end

-- larger(a, b): the larger of two GRACE, as the witness has them: strings, or false.
local function larger(a, b)
  a, b = count(a) or 0, count(b) or 0
  if a > most then a = 0 end
  if b > most then b = 0 end
  return string.format('%.0f', math.max(a, b))
end

-- boot_time(v, now) returns v if it can be the time in a boot token: µs, 16 digits, and no year
-- ahead of now, ms: else the largest number of all would make each boot after it the same.
local function boot_time(v, now)
  return v and #v == 16 and string.match(v, '^%d+$') and tonumber(v) <= (now + 366 * 86400000) * 1000 and v
end

-- tell_grace(key, grace, at, boot): an owner need not contend, so each beat records its GRACE in
-- the witness. If the witness has another one, the fleet disagrees, and the next listener finds
-- that out: no fleet has grace 0, and the beat of another owner does not hide it. Without a
-- listener it writes nothing; the next beat does. It returns the witness' last hold that may have
-- lost entries, and when the registry was last emptied.
--
-- boot, if given, is the time in the owner's boot token. It raises the highest one on record;
-- without a listener, only if the clock is earlier.
local function tell_grace(key, grace, at, boot)
  local w = redis.pcall('HMGET', key, 'grace', 'largest', 'lost', 'boot', 'emptied')
  if boot and not w.err and boot > (boot_time(w[4], at) or '') and (w[1] or tonumber(boot) >= (at + 1) * 1000) then
    redis.pcall('HSET', key, 'boot', boot)
  end
  if not w.err and w[1] and w[1] ~= grace then -- what cannot be read is not overwritten
    redis.pcall('HSET', key, 'grace', '0', 'disagreed', at, 'largest', larger(w[2], larger(w[1], grace)))
  end
  return w[3] or '', w[5]
end

-- tell_gap(key, at): the servers of a Cluster refused an owner while its keys moved from one to the
-- other. Whoever listens should have been refused too, but one of an older version, or of keys that
-- were all on one side, was not. So the owner itself says that its silence was no evidence. It
-- returns what 'lost' is then.
local function tell_gap(key, at)
  if type(redis.pcall('HGET', key, 'last')) ~= 'string' then return end -- nobody listens yet
  redis.pcall('HSET', key, 'since', at, 'hold', at, 'reason', 'gap', 'lost', at)
  return at
end
-- witness.lua: the part of a script that listens (behind server.lua and settings.lua). Not a script
-- of its own: tick.lua, guard.lua and an owner's heal.lua follow it.
--
-- Silence proves death only if somebody was listening all the time. listen() stores that the
-- server was awake now, and answers since when it has been heard without a hold. Whatever makes
-- silence worthless as evidence is a hold, and every hold is one act: since = now, with its reason.
--
--   gap             the last tick is longer ago than GAP, lies in the future, or is missing
--   restarted       the server is another than at the last tick: its run id differs, or a counter
--                   that only grows has fallen (restart, promoted replica, CONFIG RESETSTAT)
--   redis_evicting  evicted_keys differs from the one recorded; or what was recorded of the server
--                   cannot be read by this client: what cannot be read never overwrites
--   redis_refusing  the server has turned clients away since the last tick (connections, logins):
--                   an owner that lives may be unable to beat
--   settings        another GAP or GRACE than at the last tick, or than of an owner that beat
--                   since. Nothing is deleted before the largest GRACE of all seen has passed
--                   since the fleet last disagreed
--
-- The witness is a hash; all times in it are the server's, in ms:
--   since          heard without a hold since then
--   last           the last tick
--   gap, grace     the settings of the last tick; grace 0: an owner of others beat (settings.lua)
--   largest        the largest GRACE of all seen lately: so long must be listened without a hold
--   disagreed      the last time that two settings were seen
--   server, replication, connections, commands, evicted_keys, refused
--                  what server() said at the last tick that could read it
--   hold, reason  the last hold: when and why
--   lost           when Redis may last have lost entries: a hold of reason gap, restarted or
--                  self_check, or an owner that was about to write an entry found no registry.
--                  Owners check what they hold when it changes
--   mass_failure   the last hold of reason "mass_failure"
--   evicted_total  entries evicted, ever: the total beside the log
--   index_wrong    how often owners found that their reverse index had lost members
--   boot           the highest time in any boot token, µs: the next boot draws a higher one
--   emptied        when an owner's last release, or a sweep, emptied the registry
--   bye:<id>       instance <id> said goodbye but left entries behind

-- Settings are remembered for so many of the largest GRACE after two were last seen. A contender
-- ticks at least once a GAP, also where thousands do.
local memory = 10

local function text(n) return string.format('%.0f', n) end

local function kind(key)
  local t = redis.call('TYPE', key)
  return type(t) == 'table' and t.ok or t
end

local function hold(key, now, reason)
  redis.call('HSET', key, 'since', text(now), 'hold', text(now), 'reason', reason)
end

-- fell(was, is): a counter that only grows has fallen.
local function fell(was, is) return was and is ~= '' and tonumber(is) < (tonumber(was) or 0) end

-- another(w, id, connections, commands, evicted, refused) returns 'restarted' if the server is
-- another than at the last tick, 'redis_evicting' if it evicted keys since then or does not report
-- it, 'redis_refusing' if it turned clients away; nil if all is as it was.
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

-- listen(key, gap, grace) -> now, since, need, w: deletes may begin need ms after since. w holds,
-- as strings or false: [1] since, [2] now, [5] need, [6] run id, [9] evicted_keys, [10]
-- evicted_total, [11] reason and [12] time of the last hold, [15] clients turned away.
local function listen(key, gap, grace)
  local now = math.floor(server_us() / 1000)
  local w = redis.pcall('HMGET', key, 'since', 'last', 'gap', 'grace', 'largest', 'server',
    'connections', 'commands', 'evicted_keys', 'evicted_total', 'reason', 'hold', 'disagreed', 'replication', 'refused')
  if w.err then -- not a hash: it must neither wipe nor jam
    if kind(key) == 'hash' then error(w.err) end -- not allowed
    redis.call('DEL', key)
    w = {}
  end
  local id, replication, connections, commands, evicted, refused = server(w[6], w[14])
  local at = text(now)
  local set, n = { 'last', at }, 2
  local function put(i, field, value) -- what is as it was is not written again
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
  -- The time of a hold does not count: a jump of the clock must not make anything forgotten.
  local need, disagreed = tonumber(grace), count(w[13])
  if disagreed and disagreed > now then -- else it would be remembered for ever
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
  -- The first write of every script that listens. Redis refuses it when memory is full, and with it
  -- the script: where a heartbeat cannot be written, nothing may be deleted for want of one.
  redis.call('HSET', key, unpack(set))
  -- HINCRBY behind the log record must not fail: a total that is no number starts anew.
  if w[10] and not (string.match(w[10], '^%d+$') and #w[10] < 16) then
    redis.call('HSET', key, 'evicted_total', '0')
  end
  return now, since, need, w
end
-- owner.lua: the prelude of every script by which an owner writes. It makes sure that this process
-- is still the newest life of its instance id.
--
-- A boot token is 26 digits: the server's time in µs when the process first reached it (16), then
-- random (10). Tokens have one width and digits only, so they compare as strings in any locale. The
-- newest boot of an instance id wins: a higher token in the heartbeat ends the script, a lower one
-- is replaced.
--
-- KEYS[1] heartbeat  KEYS[2] roster  KEYS[3] index  KEYS[4] witness  KEYS[5] registry
-- ARGV[1] instance   ARGV[2] boot token  ARGV[3] heartbeat TTL ms  ARGV[4] '1': the index is kept
-- ARGV[5..] the script's own
-- Result: { 'SUPERSEDED' }, or what reply() makes.
local held = redis.pcall('GET', KEYS[1])
local token = type(held) == 'string' and string.match(held, '/(%d+)$')

local function server_ms()
  local t = redis.call('TIME')
  return string.format('%.0f', tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000))
end

-- A token of a year ahead of the clock is of no boot: see boot_time in settings.lua.
if token and #token == 26 and token > ARGV[2] and
  tonumber(string.sub(token, 1, 16)) <= (server_ms() + 366 * 86400000) * 1000 then return { 'SUPERSEDED' } end

-- assert_life() is the first write of a script that writes entries (S5): no entry without the
-- proof of life behind it. SET is refused when memory is full, and the script with it. It returns
-- the server's time, ms.
local function assert_life()
  local ms = server_ms()
  redis.call('SET', KEYS[1], ms .. '/' .. ARGV[2], 'PX', ARGV[3])
  -- A roster that is no set must not keep anybody from registering.
  redis.pcall('SADD', KEYS[2], ARGV[1])
  return ms
end

-- may(command, key, ...) returns whether this user may run a command. acl_check_cmd raises an error
-- for a command that the server's configuration renames: nobody may run it. Redis 6 and miniredis
-- have no acl_check_cmd.
local function may(...)
  if not redis.acl_check_cmd then return true end
  local known, allowed = pcall(redis.acl_check_cmd, ...)
  return known and allowed
end

-- witness_says(field): what the witness says, false if it does not: it is no hash, or this user may
-- not read it.
local function witness_says(field)
  local v = redis.pcall('HGET', KEYS[4], field)
  return type(v) == 'string' and v
end

-- found_gone() precedes the first entry that a script writes. Where there is no registry it warns
-- every owner, by the witness: the entry that follows would hide from them that it was lost. The
-- release or the sweep that took the last entry out has recorded that the registry is empty: then
-- nothing was lost. Such a record counts once, and not if entries may have been lost since; a beat
-- that finds a registry deletes it.
-- (Without a witness nobody has listened yet, and its first tick will say the same.)
local exists -- 1: there is a registry now; nil: not asked
local function found_gone()
  exists = 1
  if redis.call('EXISTS', KEYS[5]) == 1 or not witness_says('last') then return end
  local emptied, lost = tonumber(witness_says('emptied') or ''), tonumber(witness_says('lost') or '')
  if emptied then redis.pcall('HDEL', KEYS[4], 'emptied') end
  if not emptied or emptied < (lost or 0) then redis.pcall('HSET', KEYS[4], 'lost', server_ms()) end
end

-- index(command, list, first) keeps the reverse index of the IMEIs in list, from the first on. The
-- full scan does without the index. So an index of another type does not make a registration fail;
-- reply() tells of it. It returns how many members came or went, nil where that is not known.
local function index(command, list, first)
  if ARGV[4] ~= '1' or not list[first] then return end
  local n = redis.pcall(command, KEYS[3], unpack(list, first))
  return type(n) == 'number' and n or nil
end

-- reply(count, foreign, lost) -> { 'OK', 1 if the own heartbeat was absent, size of the index, the
-- witness' last hold that may have lost entries, 1 if there is no registry, count, foreign }: what
-- an owner must know, in O(1), to see that Redis lost something. count and foreign are the
-- script's.
local function reply(count, foreign, lost)
  local size = redis.pcall('SCARD', KEYS[3])
  return { 'OK', token == ARGV[2] and 0 or 1, type(size) == 'number' and size or -1,
    lost or witness_says('lost') or '', 1 - (exists or redis.call('EXISTS', KEYS[5])), count or 0, foreign or {} }
end

-- word(id) returns an id as a word of a message; see words.go.
local function word(id)
  if id == '' then return '%' end
  if not string.find(id, '[%c%% ]') and string.sub(id, 1, 1) ~= '/' then return id end
  id = string.gsub(id, '[%c%% ]', function(c) return string.format('%%%02X', string.byte(c)) end)
  return (string.gsub(id, '^/', '%%2F'))
end

-- tell(found, list, first) tells former owners at once which devices they lost, on a channel of the
-- name of their heartbeat. An owner that does not receive it finds out at its next check. Where
-- publishing is not allowed nobody receives it.
-- found: what the entries of the IMEIs in list, from the first on, were before.
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
-- heal.lua: puts back entries that their owner still holds (behind guard.ListenLua and owner.lua).
-- An entry is written only if it is absent, or names exactly the instance that the owner saw there.
-- That instance needs evidence against it: a fresh frame of the device, which the caller vouches
-- for; or, with KEYS[6..], its death by the guard's own conditions, which this script finds out.
-- KEYS[6..] heartbeats of the instances that may be dead
-- ARGV[5..] pairs: IMEI, instance seen ('': none); with KEYS[6..] three more at the end: GAP ms,
--   GRACE ms, '1': this owner's beats have landed lately
-- What names another instance leaves the owner's index: it is not this owner's to be swept, and the
-- full scan is put off only while indexes and entries are equally many.
-- Extra: how many were put back, -1 if none of KEYS[6..] is dead and nothing was looked at; foreign
-- entries as a flat list IMEI, instance.

-- may_listen(): the attempt of a user who may not read the counters would hold everybody's sweeps.
local function may_listen()
  return may('INFO', 'replication') and may('INFO', 'stats') and may('INFO', 'errorstats') and may('INFO', 'server')
end

-- find_dead() -> the instances that the guard would call dead, as keys of a table; nil: none. Like
-- guard.lua it relies on the absence of a heartbeat only while its own exists. Its own absence is a
-- hold only if its beats have landed. Otherwise one owner that cannot beat would hold everybody.
local function find_dead()
  local dead, any = {}, false
  for i = 6, #KEYS do
    if redis.call('EXISTS', KEYS[i]) == 0 then
      dead[string.sub(KEYS[i], #KEYS[1] - #ARGV[1] + 1)] = true
      any = true
    end
  end
  if not any or not may_listen() then return end -- none is silent: there is nothing to listen for
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
-- An index that lacked what stood was lost, in part at least, and others may be too.
if (index('SADD', ours, 1) or 0) > 0 and witness_says('last') then
  redis.pcall('HINCRBY', KEYS[4], 'index_wrong', 1)
end
index('SREM', theirs, 1)
tell(from, taken, 1)
return reply(n, foreign)
