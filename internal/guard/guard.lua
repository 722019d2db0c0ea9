-- guard.lua: the prelude of every script that deletes for the janitor (after former.lua). Package
-- guard documents the checks, NewBody what the body that follows may use and must do.
--
-- Scripts do not roll back: nothing after record() may fail.
--
-- KEYS[1] log  KEYS[2] lease  KEYS[3] witness  KEYS[4] the leader's own heartbeat
-- KEYS[5] the owner's heartbeat (if no owner is judged, KEYS[4] again)  KEYS[6..] the body's
-- ARGV[1] batch id <epoch>-<n>  ARGV[2] lease token  ARGV[3] GAP ms  ARGV[4] GRACE ms
-- ARGV[5] leader  ARGV[6] owner ('': none is judged)  ARGV[7] sweep  ARGV[8..] the body's items
-- At the ends of both, taken off so that the body's keys and items end there:
--   KEYS beats
--   ARGV ms of the leader's newest heartbeat; the owner's record as the leader read it, and when,
--        by the server's clock in ms
-- Result: { verdict, deleted, reowned, reason, repeated 0|1 }, see answer()
local beats, read_at = table.remove(KEYS), tonumber(table.remove(ARGV))
local seen = table.remove(ARGV)
local wrong = former(beats, ARGV[5], table.remove(ARGV))
if wrong then return wrong end

local function answer(verdict, deleted, reowned, reason, repeated)
  return { verdict, deleted or 0, reowned or 0, reason or '', repeated or 0 }
end

-- 1. The batch ran before and its reply was lost: answer from the log, do nothing.
local asked = redis.pcall('XRANGE', KEYS[1], ARGV[1], ARGV[1])
if asked.err then -- the log is a key of another type: a new term sets it aside
  return string.find(asked.err, 'WRONGTYPE', 1, true) and answer('FENCED') or asked
end
if asked[1] then
  local f, v = {}, asked[1][2]
  for i = 1, #v, 2 do f[v[i]] = v[i + 1] end
  -- A record that somebody else wrote under a coming id does not answer for the batch.
  local deleted, reowned = count(f.count), count(f.reowned)
  if f.leader ~= ARGV[5] or not deleted or not reowned or deleted > 1000000 then return answer('FENCED') end
  return answer('DONE', deleted, reowned, f.note, 1)
end

-- 2. The lease holds this term's token.
if redis.pcall('GET', KEYS[2]) ~= ARGV[2] then return answer('FENCED') end

-- 3. The witness. listen() is the first write, which Redis refuses when memory is full.
local now, since, w = listen(KEYS[3], ARGV[3], ARGV[4])
local need = tonumber(ARGV[4])
if now - since >= need and redis.call('EXISTS', KEYS[4]) == 0 then
  local at = text(now)
  redis.call('HSET', KEYS[3], 'since', at, 'hold', at, 'lost', at, 'reason', 'self_check')
  since, w.reason = now, 'self_check'
end
if now - since < need then return answer('HELD', 0, 0, w.reason) end
-- An owner's record outlives its heartbeat. What other sweeps look for may have been evicted.
if ARGV[6] == '' and now - (count(w.evicted_at) or -need) < need then return answer('HELD', 0, 0, 'redis_evicting') end

-- 4. The owner is silent, and nothing speaks against its death. The rule is that of Go package
-- guard/doubt, except what the leader has judged by all records at read_at: whether most were off.
-- speaks() -> nil, or the verdict with its reason.
local function speaks()
  local record = redis.pcall('HGET', beats, ARGV[6])
  local last, ttl, due, state = string.match(tostring(record), '^(%d+)/(%d+)/(%d+)/%d+/%d+/([hibp])$')
  if redis.call('EXISTS', KEYS[5]) == 1 then return 'ALIVE' end
  if not last then return 'WAIT', 'unknown' end
  local fell, grace = last + ttl, ttl + 2000
  if state ~= 'b' and fell > now then return 'ALIVE' end -- its heartbeat was evicted, not its life
  if record ~= seen then return 'WAIT', 'stale' end
  if state ~= 'b' then
    local quiet = now - math.max(fell, since)
    if state == 'p' then quiet = quiet - due end -- one beat may have been evicted before it was read
    if quiet < 10 * grace and now - (count(w.refused_at) or -grace) < grace then return 'WAIT', 'refused' end
    if quiet < grace and (now < read_at or now - read_at > 2000) then return 'WAIT', 'stale' end
  end
  if now - since < grace then return 'WAIT', 'held' end -- its TTL is longer than the fleet's
end
if ARGV[6] ~= '' then
  local verdict, reason = speaks()
  if verdict then return answer(verdict, 0, 0, reason) end
end

-- refused(command, key, ...) -> the error to return if this user may not run it, or nil. It is not
-- to be counted among the clients turned away, so it must not begin with NOPERM. miniredis has no
-- users.
local function refused(...)
  if redis.acl_check_cmd and not redis.acl_check_cmd(...) then
    return redis.error_reply('ERR NOPERM: this user has no permissions to run ' .. (...) .. ' on ' .. select(2, ...) .. ': nothing deleted')
  end
end

-- 5. record(deleted, reowned, name, list, note) writes the log record; see NewBody. Anything but
-- nil is the script's result, to be returned at once: the id is not above the newest, so a newer
-- term has begun, or somebody wrote the largest possible id, and a new term sets that log aside.
local function record(deleted, reowned, name, list, note)
  local no = refused('HINCRBY', KEYS[3], 'evicted_total', '1')
  if no then return no end
  local ok = redis.pcall('XADD', KEYS[1], ARGV[1], 'at', text(now), 'leader', ARGV[5], 'owner', ARGV[6], 'sweep', ARGV[7],
    'count', deleted, 'reowned', reowned, name, #list > 0 and cjson.encode(list) or '[]',
    unpack(note and { 'note', note } or {}))
  if type(ok) == 'table' then -- an error
    if string.find(ok.err, 'equal or smaller') or string.find(ok.err, 'exhausted') then return answer('FENCED') end
    return ok
  end
  redis.call('HINCRBY', KEYS[3], 'evicted_total', deleted)
end
