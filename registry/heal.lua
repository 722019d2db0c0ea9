-- heal.lua: restores entries that their owner still holds (after settings.lua and owner.lua). It
-- writes an entry only if it is absent, or, with KEYS[7..], names an instance that is dead, which
-- is checked here. It never replaces a living one. KEYS[7..] heartbeats of the instances that may
-- be dead ARGV[9..] ids; with KEYS[7..] one more at the end: GAP ms Entries that name another
-- instance leave the owner's index: they are not its own to be swept, and the full scan is
-- postponed only while indexes and entries are equally many. Extra: number of entries restored, or
-- -1 if none of KEYS[7..] is dead (nothing was read); foreign entries as a flat list id, instance.

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

local dead, last_id = nil, #ARGV
if KEYS[7] then
  dead, last_id = find_dead(tonumber(ARGV[#ARGV])), #ARGV - 1
  if not dead then return reply(-1) end
end
assert_life()
local before = redis.call('HMGET', KEYS[5], unpack(ARGV, 9, last_id))
local me, held, theirs, set, foreign, n = ARGV[1], {}, {}, {}, {}, 0
for i = 1, #before do
  local id, now = ARGV[8 + i], before[i]
  if now and now ~= me and now ~= '' and not (dead and dead[now]) then -- '' names nobody
    theirs[#theirs + 1] = id
    foreign[#foreign + 1] = id
    foreign[#foreign + 1] = now
  else
    held[#held + 1] = id
    if now ~= me then
      n = n + 1
      set[2 * n - 1], set[2 * n] = id, me
    end
  end
end
if n > 0 then
  found_gone()
  redis.call('HSET', KEYS[5], unpack(set))
end
index('SADD', held, 1)
index('SREM', theirs, 1)
return reply(n, foreign)
