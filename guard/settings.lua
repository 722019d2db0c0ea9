-- settings.lua: what owners tell the witness, and whether replicas' GRACE differs: the largest
-- counts. Not a script of its own: beat.lua, boot.lua and witness.lua stand behind it.

-- What is larger than two days is no setting of ours.
local most = 172800000

-- larger(a, b): the larger of two GRACE, as the witness has them: strings, or false.
local function larger(a, b)
  a, b = tonumber(a or '') or 0, tonumber(b or '') or 0
  if a > most then a = 0 end
  if b > most then b = 0 end
  return string.format('%.0f', math.max(a, b))
end

-- tell_grace(key, grace, at): an owner need not contend, so it tells the witness its GRACE when it
-- beats. If another stands there the fleet disagrees, and whoever listens next finds it so: grace 0
-- is nobody's, and the beat of another owner does not hide it. Where nobody listens yet it writes
-- nothing; its next beat does. It returns the witness' last hold that may have lost entries.
local function tell_grace(key, grace, at)
  local w = redis.pcall('HMGET', key, 'grace', 'largest', 'lost')
  if not w.err and w[1] and w[1] ~= grace then -- what cannot be read is not overwritten
    redis.pcall('HSET', key, 'grace', '0', 'disagreed', at, 'largest', larger(w[2], larger(w[1], grace)))
  end
  return w[3] or ''
end

-- tell_gap(key, at): the servers of a Cluster refused an owner while its keys moved from one to the
-- other. Whoever listens should have been refused too, but one of an older version, or of keys that
-- were all on one side, was not. So the owner itself says that its silence was no evidence. It
-- returns what 'lost' is then.
local function tell_gap(key, at)
  if type(redis.pcall('HGET', key, 'last')) ~= 'string' then return end -- nobody listens yet
  redis.pcall('HSET', key, 'since', at, 'hold', at, 'reason', 'gap', 'lost', at)
  return at
end
