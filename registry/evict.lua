-- evict.lua: the body (behind guard.lua) that evicts entries of one dead owner.
-- KEYS[6] registry  KEYS[7] the owner's index
-- ARGV[8..] IMEIs, at most 1000: unpack ends below 8,000
-- Result: DONE, how many went, how many named somebody else.
local function usable(key, want)
  local k = kind(key)
  return k == want or k == 'none'
end
if not (usable(KEYS[1], 'stream') and usable(KEYS[6], 'hash') and usable(KEYS[7], 'set')) then
  return redis.error_reply('WRONGTYPE audit, registry or index is of another type: nothing evicted')
end

local imeis = {}
for i = 8, #ARGV do imeis[#imeis + 1] = ARGV[i] end
local owners = redis.call('HMGET', KEYS[6], unpack(imeis))
local dead, seen, reowned = {}, {}, 0
for i, imei in ipairs(imeis) do
  if owners[i] == ARGV[6] then
    if not seen[imei] then dead[#dead + 1] = imei end -- asked for twice, it still goes, and counts, once
    seen[imei] = true
  elseif owners[i] then
    reowned = reowned + 1
  end
end

local refused = record(#dead, reowned, 'imeis', dead)
if refused then return refused end
if #dead > 0 then redis.call('HDEL', KEYS[6], unpack(dead)) end
redis.call('SREM', KEYS[7], unpack(imeis))
return answer('DONE', #dead, reowned)
