-- heal.lua: restores entries that their owner still holds (after guard.ListenLua and owner.lua). It
-- writes an entry only if it is absent, or names exactly the instance that the owner saw there.
-- That takes evidence against the instance: a fresh frame of its client, for which the caller
-- vouches, or, with KEYS[6..], its death by the guard's own conditions, checked here.
-- KEYS[6..] heartbeats of the instances that may be dead
-- ARGV[5..] pairs: id, instance seen ('': none); with KEYS[6..] three more at the end: GAP ms,
--   GRACE ms, '1': this owner's beats have landed lately
-- Entries that name another instance leave the owner's index: they are not its own to be swept, and
-- the full scan is postponed only while indexes and entries are equally many.
-- Extra: number of entries restored, or -1 if none of KEYS[6..] is dead (nothing was read); foreign
-- entries as a flat list id, instance.

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
