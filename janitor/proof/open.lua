-- open.lua: reads a sweep's state with the time of its server. Read-only.
-- KEYS[1] the witness  KEYS[2] the state, a hash
-- Result: { now (ms), start of the witness's listening (ms) or '', field, value... }, without what
--   is longer than any note (bytes), and without any of a hash that has more fields than a sweep
--   notes
local longest, most = 8192, 1000
local time = redis.call('TIME')
local out = { string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)),
  redis.call('HGET', KEYS[1], 'since') or '' }
local fields = redis.call('HLEN', KEYS[2]) <= most and redis.call('HGETALL', KEYS[2]) or {}
for i = 1, #fields, 2 do
  if #fields[i] <= longest and #fields[i + 1] <= longest then
    out[#out + 1], out[#out + 2] = fields[i], fields[i + 1]
  end
end
return out
