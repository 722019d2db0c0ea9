-- witness.lua: for how long heartbeats have been heard. Not a script of its own.

-- listened(witness, now) is for how long (ms) the janitor's witness has listened without a hold:
-- only so much silence means something. 0: it does not listen now.
local function listened(witness, now)
  local w = redis.call('HMGET', witness, 'since', 'last', 'gap')
  local since, last, gap = tonumber(w[1] or ''), tonumber(w[2] or ''), tonumber(w[3] or '')
  if not since or not last or not gap or now - last > gap then return 0 end
  return math.max(0, now - since)
end
