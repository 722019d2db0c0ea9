-- open.lua: reads a sweep's state with the time of its server. Read-only.
-- KEYS[1] the witness  KEYS[2] the state, a hash
-- Result: { now (ms), start of the witness's listening (ms) or '', field, value... }, without what is
--   longer than any note (bytes), and without any of a hash that has more fields than a sweep notes
local longest, most = 8192, 1000
local time = redis.call('TIME')
local out = { string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)),
  redis.call('HGET', KEYS[1], 'since') or '' }
for _, field in ipairs(redis.call('HLEN', KEYS[2]) <= most and redis.call('HKEYS', KEYS[2]) or {}) do
  if #field <= longest and redis.call('HSTRLEN', KEYS[2], field) <= longest then
    out[#out + 1], out[#out + 2] = field, redis.call('HGET', KEYS[2], field)
  end
end
return out
