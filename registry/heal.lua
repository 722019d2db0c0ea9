-- heal.lua: puts back entries that their owner still holds (behind owner.lua), never over a claim
-- that the owner has not seen: an entry is written only if it is absent, or names exactly the
-- instance that the owner saw there and has fresh evidence against.
-- ARGV[5..] pairs: IMEI, instance seen ('': none)
-- What names another instance leaves the owner's index: it is not this owner's to be swept, and the
-- full scan is put off only while indexes and entries are equally many.
-- Extra: how many were put back; foreign entries as a flat list IMEI, instance.
assert_life()
local imeis = {}
for i = 5, #ARGV, 2 do imeis[(i - 3) / 2] = ARGV[i] end
local found = redis.call('HMGET', KEYS[5], unpack(imeis))
local me, ours, theirs, set, foreign, taken, from, n = ARGV[1], {}, {}, {}, {}, {}, {}, 0
for i = 1, #found do
  local imei, now, seen = imeis[i], found[i], ARGV[4 + 2 * i]
  if now == me then
    ours[#ours + 1] = imei
  elseif not now or now == '' or (seen ~= '' and now == seen) then -- '' names nobody
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
