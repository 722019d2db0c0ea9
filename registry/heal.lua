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
