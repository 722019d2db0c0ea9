-- release.lua: an owner takes out its own entries, compared (behind owner.lua).
-- ARGV[5..] IMEIs, at most 1000. Extra: how many entries went.
local imeis = {}
for i = 5, #ARGV do imeis[#imeis + 1] = ARGV[i] end
local found = redis.call('HMGET', KEYS[5], unpack(imeis))
local own = {}
for i, imei in ipairs(imeis) do
  if found[i] == ARGV[1] then own[#own + 1] = imei end
end
if #own > 0 then redis.call('HDEL', KEYS[5], unpack(own)) end
redis.pcall('SREM', KEYS[3], unpack(imeis)) -- also of an index that an earlier life kept
return signs(#own)
