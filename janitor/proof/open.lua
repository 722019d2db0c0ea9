-- open.lua: reads a sweep's state with the time of its server. Read-only.
-- KEYS[1] the witness  KEYS[2] the state, a hash
-- Result: { now (ms), start of the witness's listening (ms) or '', field, value... }
local time = redis.call('TIME')
local out = { string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)),
  redis.call('HGET', KEYS[1], 'since') or '' }
for _, text in ipairs(redis.call('HGETALL', KEYS[2])) do out[#out + 1] = text end
return out
