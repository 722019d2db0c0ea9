-- heal.lua: restores entries that their owner still holds (after settings.lua and owner.lua). It
-- writes an entry only if it is absent, or names exactly the instance that the owner saw there.
-- That takes evidence against the instance: a fresh frame of its client, for which the caller
-- vouches, or, with KEYS[7..], its death, checked here.
-- KEYS[7..] heartbeats of the instances that may be dead
-- ARGV[9..] pairs: id, instance seen ('': none); with KEYS[7..] one more at the end: GAP ms
-- Entries that name another instance leave the owner's index: they are not its own to be swept, and
-- the full scan is postponed only while indexes and entries are equally many.
-- Extra: number of entries restored, or -1 if none of KEYS[7..] is dead (nothing was read); foreign
-- entries as a flat list id, instance.

-- heard(now, gap) returns since when Redis has been heard. Contenders tick more often than GAP / 2.
-- If there are none, this is a tick, except that it does not look for a restart: nothing else than
-- a gap makes a living owner miss a beat.
local function heard(now, gap)
  local w = redis.pcall('HMGET', KEYS[4], 'since', 'last')
  local since, ticked = count(w[1]), count(w[2])
  if not since or not ticked or since > now or ticked > now or now - ticked > gap then
    since = now
    redis.pcall('HSET', KEYS[4], 'since', text(now), 'last', text(now), 'hold', text(now), 'reason', 'gap', 'lost', text(now))
  elseif now - ticked > gap / 2 then
    redis.pcall('HSET', KEYS[4], 'last', text(now))
  end
  return since
end

-- find_dead(gap) -> a table keyed by the dead, as doubt.Record.Takes; nil if none. Doubts about the
-- many do not count: a living owner would have beaten since Redis is heard.
local function find_dead(gap)
  local now, dead, since = server_ms(), nil, nil
  for i = 7, #KEYS do
    if redis.call('EXISTS', KEYS[i]) == 0 then
      local id = string.sub(KEYS[i], #KEYS[1] - #ARGV[1] + 1)
      local last, ttl, due, _, _, state = parts(redis.pcall('HGET', KEYS[6], id))
      since = since or heard(now, gap)
      if last and state ~= 'p' and (state == 'b' or last + ttl <= now) and now - since >= due then
        dead = dead or {}
        dead[id] = true
      end
    end
  end
  return dead
end

local dead, pairs_end = nil, #ARGV
if KEYS[7] then
  dead, pairs_end = find_dead(tonumber(ARGV[#ARGV])), #ARGV - 1
  if not dead then return reply(-1) end
end
assert_life()
local imeis = {}
for i = 9, pairs_end, 2 do imeis[(i - 7) / 2] = ARGV[i] end
local before = redis.call('HMGET', KEYS[5], unpack(imeis))
local me, ours, theirs, set, foreign, taken, from, n = ARGV[1], {}, {}, {}, {}, {}, {}, 0
for i = 1, #before do
  local imei, now, seen = imeis[i], before[i], ARGV[8 + 2 * i]
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
index('SADD', ours, 1)
index('SREM', theirs, 1)
tell(from, taken, 1)
return reply(n, foreign)
