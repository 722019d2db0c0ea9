-- evict.lua: the body (behind guard.lua) that evicts entries of one dead owner.
-- KEYS[6] registry  KEYS[7] the owner's index; none: it goes as a whole, when it has been swept
-- ARGV[8..] IMEIs, distinct, at most 1000: unpack ends below 8,000
-- Result: DONE, how many went, how many named somebody else, why the index was left as it is ('':
-- it was not).
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
if n == #owners then -- as a rule; copying all at once is quicker than picking
  dead = { unpack(args, 8) }
else
  for i = 1, #owners do
    if owners[i] == owner then dead[#dead + 1] = args[i + 7] end
  end
end

-- A batch that changes nothing gets no record: an index that cannot be emptied is read again and
-- again, and records of nothing would push the others out of the log.
local indexed = KEYS[7] and not refused('SREM', KEYS[7], 'x')
if n > 0 or indexed then
  local result = record(n, reowned, 'imeis', dead)
  if result then return result end
end
if n > 0 then
  redis.call('HDEL', KEYS[6], unpack(dead))
  -- see found_gone in owner.lua
  if redis.call('EXISTS', KEYS[6]) == 0 then redis.pcall('HSET', KEYS[3], 'emptied', text(now)) end
end
-- The index is only a help: one that is no set is left as it is, and keeps no entry of the dead.
local srem = KEYS[7] and redis.pcall('SCARD', KEYS[7]) ~= 0 and redis.pcall('SREM', KEYS[7], unpack(args, 8))
return answer('DONE', n, reowned, type(srem) == 'table' and srem.err)
