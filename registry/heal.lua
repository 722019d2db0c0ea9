-- heal.lua: puts back entries that their owner still holds (behind owner.lua), never over a claim
-- that the owner has not seen: an entry is written only if it is absent, or names exactly the
-- instance that the owner saw there and has fresh evidence against.
-- ARGV[5..] pairs: IMEI, instance seen ('': none)
-- Extra: how many were put back; foreign entries as a flat list IMEI, instance.
assert_life()
local imeis = {}
for i = 5, #ARGV, 2 do imeis[#imeis + 1] = ARGV[i] end
local found = redis.call('HMGET', KEYS[5], unpack(imeis))
local set, ours, foreign, taken, from = {}, {}, {}, {}, {}
for i, imei in ipairs(imeis) do
  local now, seen = found[i], ARGV[4 + 2 * i]
  if now == ARGV[1] then
    ours[#ours + 1] = imei
  elseif not now or now == '' or (seen ~= '' and now == seen) then -- '' names nobody
    ours[#ours + 1] = imei
    set[#set + 1] = imei
    set[#set + 1] = ARGV[1]
    taken[#taken + 1], from[#from + 1] = imei, now or ''
  else
    foreign[#foreign + 1] = imei
    foreign[#foreign + 1] = now
  end
end
if #set > 0 then redis.call('HSET', KEYS[5], unpack(set)) end
index('SADD', ours)
tell(from, taken)
return signs(#set / 2, foreign)
