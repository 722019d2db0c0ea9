-- reading.lua: the evidence that a leader judges silence by, of one instant (after server.lua,
-- settings.lua and former.lua). It writes nothing.
-- KEYS[1] beats  KEYS[2] roster  KEYS[3] witness
-- ARGV[1] leader  ARGV[2] its newest heartbeat, ms  ARGV[3] the most records, or members, to return
-- Result: { now ms, since ms, refused_at ms (0: unknown), records, roster }; each of the last two
--         a list, 0 if it is longer and must be scanned, or the error if it cannot be read
local wrong = former(KEYS[1], ARGV[1], ARGV[2])
if wrong then return wrong end

local function whole(size, all, key)
  local n = redis.pcall(size, key)
  if type(n) == 'number' and n > tonumber(ARGV[3]) then return 0 end
  local found = type(n) == 'number' and redis.pcall(all, key) or n
  if found.err then return found.err end
  for i = 1, #found do found[i] = string.sub(found[i], 1, 1024) end
  return found
end

local w = redis.pcall('HMGET', KEYS[3], 'since', 'refused_at')
return { math.floor(server_us() / 1000), count(w[1]) or 0, count(w[2]) or 0,
  whole('HLEN', 'HGETALL', KEYS[1]), whole('SCARD', 'SMEMBERS', KEYS[2]) }
