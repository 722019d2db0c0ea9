-- evict.lua: the body (after guard.lua) that evicts entries of one dead owner.
-- KEYS[6] registry  KEYS[7] the owner's index; omitted if it will be deleted as a whole
-- ARGV[8..] ids, distinct, at most 1000: unpack fails just below 8,000
-- Result: DONE, entries evicted, entries that named somebody else, the error that kept the index
-- unchanged ('': none).
local function usable(key, want)
  local k = kind(key)
  return k == want or k == 'none'
end
if not (usable(KEYS[1], 'stream') and usable(KEYS[6], 'hash')) then
  return redis.error_reply('WRONGTYPE eviction log or registry is of another type: nothing evicted')
end

local no = refused('HDEL', KEYS[6], 'x')
if no then return no end

local args, owner = ARGV, ARGV[6]
local owners = redis.call('HMGET', KEYS[6], unpack(args, 8))
local n, reowned = 0, 0
for i = 1, #owners do
  local o = owners[i]
  if o == owner then
    n = n + 1
  elseif o then
    reowned = reowned + 1
  end
end
local dead = {}
if n == #owners then -- the usual case; copying all at once is faster than picking
  dead = { unpack(args, 8) }
else
  for i = 1, #owners do
    if owners[i] == owner then dead[#dead + 1] = args[i + 7] end
  end
end

local result = record(n, reowned, 'imeis', dead)
if result then return result end
if n > 0 then
  redis.call('HDEL', KEYS[6], unpack(dead))
  -- see found_gone in owner.lua
  if redis.call('EXISTS', KEYS[6]) == 0 then redis.pcall('HSET', KEYS[3], 'emptied', text(now)) end
end
-- The index is only an aid: if it is not a set it stays, and protects no entry.
local srem = KEYS[7] and redis.pcall('SCARD', KEYS[7]) ~= 0 and redis.pcall('SREM', KEYS[7], unpack(args, 8))
return answer('DONE', n, reowned, type(srem) == 'table' and srem.err)
