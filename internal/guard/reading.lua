-- reading.lua: the evidence that a leader judges silence by, of one instant (after server.lua,
-- settings.lua and former.lua). It writes nothing, but removes what is too large for any
-- owner to have written, which would keep Redis busy at each reading.
-- KEYS[1] beats  KEYS[2] roster  KEYS[3] witness
-- ARGV[1] leader  ARGV[2] its newest heartbeat, ms  ARGV[3] the most records, or members, to return
-- Result: { now ms, since ms, refused_at ms (0: unknown), records, roster }; each of the last two
--         a list, 0 if it is longer and must be scanned, or the error if it cannot be read
local wrong = former(KEYS[1], ARGV[1], ARGV[2])
if wrong then return wrong end

local longest = 1024
local function whole(size, all, remove, key)
  local n = redis.pcall(size, key)
  if type(n) == 'number' and n > tonumber(ARGV[3]) then return 0 end
  local found = type(n) == 'number' and redis.pcall(all, key) or n
  if found.err then return found.err end
  local step, fit = all == 'HGETALL' and 2 or 1, {}
  for i = 1, #found, step do
    if #found[i] <= longest and #found[i + step - 1] <= longest then
      for j = i, i + step - 1 do fit[#fit + 1] = found[j] end
    else
      redis.pcall(remove, key, found[i])
    end
  end
  return fit
end

local w = redis.pcall('HMGET', KEYS[3], 'since', 'refused_at')
return { math.floor(server_us() / 1000), count(w[1]) or 0, count(w[2]) or 0,
  whole('HLEN', 'HGETALL', 'HDEL', KEYS[1]), whole('SCARD', 'SMEMBERS', 'SREM', KEYS[2]) }
