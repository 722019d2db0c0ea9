-- witness.lua: the part of a script that listens. Not a script of its own: tick.lua and guard.lua
-- stand behind it.
--
-- Silence proves death only if somebody was listening all the time. listen() stores that the
-- server was awake now and answers since when it has been heard without a gap. Whatever makes
-- silence worthless as evidence is a doubt, and every doubt is one act: since = now, with its reason.
--
-- The witness is a hash; all times in it are the server's, in ms:
--   since          heard without a doubt since then
--   last           the last tick
--   gap, warm      the settings that this fleet agrees on
--   evicted_keys   the server's own counter at the last tick ('' where it offers none)
--   doubt, reason  the last doubt: when and why
--   brake          the last doubt of reason "brake"
--   evicted_total  entries evicted, ever: the total beside the audit
--   bye:<id>       instance <id> said goodbye but left entries behind

local function text(n) return string.format('%.0f', n) end

local function server_us()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000000 + tonumber(t[2])
end

local function kind(key)
  local t = redis.call('TYPE', key)
  return type(t) == 'table' and t.ok or t
end

local function doubt(key, now, reason)
  redis.call('HSET', key, 'since', text(now), 'doubt', text(now), 'reason', reason)
end

-- evicted_keys() is '' where INFO is not to be had (refused, or a server without that counter).
local function evicted_keys()
  local info = redis.pcall('INFO', 'stats')
  return type(info) == 'string' and string.match(info, 'evicted_keys:(%d+)') or ''
end

-- listen(key, gap, warm) -> now, since, evicted_keys
local function listen(key, gap, warm)
  local now = math.floor(server_us() / 1000)
  local w = redis.pcall('HMGET', key, 'since', 'last', 'gap', 'warm', 'evicted_keys', 'evicted_total')
  if w.err then -- not a hash: it must neither wipe nor jam
    redis.call('DEL', key)
    w = {}
  end
  local since, last, evicted = tonumber(w[1] or ''), tonumber(w[2] or ''), evicted_keys()
  local reason
  if not since or not last or since > now or last > now or now - last > tonumber(gap) then
    reason = 'gap'
  elseif w[3] ~= gap or w[4] ~= warm then
    reason = 'settings'
  elseif evicted ~= '' and w[5] and w[5] ~= '' and w[5] ~= evicted then
    reason = 'evicted'
  end
  -- The first write of every script that listens. Redis refuses it when memory is full, and with it
  -- the script: where a heartbeat cannot be written, nothing may be deleted for want of one.
  redis.call('HSET', key, 'last', text(now), 'gap', gap, 'warm', warm, 'evicted_keys', evicted)
  if reason then
    doubt(key, now, reason)
    since = now
  end
  -- HINCRBY behind the audit record must not fail: a total that is no number starts anew.
  if w[6] and not (string.match(w[6], '^%d+$') and #w[6] < 16) then
    redis.call('HSET', key, 'evicted_total', '0')
  end
  return now, since, evicted
end
