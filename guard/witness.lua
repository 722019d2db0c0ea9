-- witness.lua: observes the server (after server.lua and settings.lua). Prefix of tick.lua,
-- guard.lua and an owner's heal.lua.
--
-- listen() stores that the server is awake, and returns since when it has been observed without a
-- hold. Every hold is one act: since = now, with its reason.
--
--   gap        the last tick is longer ago than GAP, lies in the future, or is missing
--   restarted  the server is another than at the last tick: its run id differs, or a counter that
--              only grows has fallen (restart, promoted replica, CONFIG RESETSTAT)
--   settings   GAP or GRACE differ from the last tick's, or from those of an owner that beat since.
--              Nothing is deleted until the largest GRACE seen has passed since the fleet last
--              disagreed
--
-- The witness is a hash. All its times are the server's, in ms:
--   since          observed without a hold since then
--   last           the last tick
--   gap, grace     settings of the last tick; grace 0: an owner's beat disagreed (settings.lua)
--   largest        the largest GRACE seen lately: the time without a hold before deletes
--   disagreed      the last time that two settings were seen
--   server, replication, connections, commands, refused
--                  server()'s values at the last tick that could read them
--   refused_at     when clients were last turned away ('refused' grew), or a tick could not read
--                  their number although it is on record: a live owner may be unable to beat
--   hold, reason   the last hold
--   lost           when Redis may last have lost entries: a hold of reason gap, restarted or
--                  self_check, or an owner was about to write an entry and found no registry.
--                  Owners check their claims when it changes
--   evicted_total  entries evicted, ever: the total kept beside the log
--   index_wrong    how often owners found that their reverse index had lost members
--   boot           the highest time in any boot token, µs: the next boot draws a higher one
--   emptied        when an owner's last release, or a sweep, emptied the registry

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

-- another(w, ...) compares server()'s values with the last tick's. Unreadable values show nothing.
local function another(w, id, connections, commands, refused)
  return id ~= '' and w[6] ~= id or fell(w[7], connections) or fell(w[8], commands) or fell(w[15], refused)
end

local fields = { 'since', 'last', 'gap', 'grace', 'largest', 'server', 'connections', 'commands', 'refused_at',
  'evicted_total', 'reason', 'hold', 'disagreed', 'replication', 'refused', 'lost', 'boot', 'emptied',
  'index_wrong' }

-- The witness writes nothing longer, in bytes. Replicas read it again and again, so a longer value
-- is somebody's, and is deleted.
local longest = 64

-- listen(key, gap, grace, aside) -> now, since, need, w: deletes may begin need ms after since. A
-- key of another type may be somebody's, and is renamed to aside. Without that name, or if it is
-- taken, nothing is written, and this is a hold until a tick has done so. w holds, as strings or
-- false: [1] since, [2] now, [5] need, [6] run id, [9] refused_at, [10] evicted_total, [11] reason
-- and [12] time of the last hold, [15] clients turned away. w.id and w.refused tell whether this
-- client can read those two.
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
  local id, replication, connections, commands, refused = server(w[6], w[14])
  w.id, w.refused = id ~= '', refused ~= ''
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
  elseif another(w, id, connections, commands, refused) then
    reason = 'restarted'
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
  if w[15] and w[15] ~= refused or (count(w[9]) or 0) > now then put(9, 'refused_at', at) end
  if refused ~= '' then put(15, 'refused', refused) end
  -- The first write of every script that listens. Redis refuses it, and with it the script, when
  -- memory is full: if heartbeats cannot be written, a missing one must delete nothing.
  redis.call('HSET', key, unpack(set))
  for _, i in ipairs(too_long) do
    if w[i] == '' then redis.call('HDEL', key, fields[i]) end
  end
  -- HINCRBY after the log record must not fail: a total that is not a number restarts at 0.
  if w[10] and not (string.match(w[10], '^%d+$') and #w[10] < 16) then
    redis.call('HSET', key, 'evicted_total', '0')
    w[10] = '0'
  end
  w[11], w[12] = brief(w[11]), brief(w[12])
  return now, since, need, w
end
