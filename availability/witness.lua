-- witness.lua: how long heartbeats have been heard. Included, not a script of its own.

-- listened(witness, now) returns how long (ms) the janitor's witness has listened without a hold:
-- longer silence means nothing. 0: it is not listening now, or the key does not hold a witness,
-- and the janitor's next tick replaces it.
local function listened(witness, now)
  local w = redis.pcall('HMGET', witness, 'since', 'last', 'gap')
  if w.err then return 0 end
  local function ms(v) return v and #v < 17 and string.find(v, '^%-?%d+$') and tonumber(v) end
  local since, last, gap = ms(w[1]), ms(w[2]), ms(w[3])
  if not since or not last or not gap or now - last > gap then return 0 end
  return math.max(0, now - since)
end
