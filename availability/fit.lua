-- fit.lua: checks that the keys all mitras share have the mirror's types, and unlinks those that
-- do not. They are all recreated, from the source or by the replica that computes, seeds or
-- sweeps.
-- KEYS[1..4] see keys.lua  KEYS[5] mitras:fed  KEYS[6] availability:snapshot
-- KEYS[7] availability:snapshot:computing  KEYS[8] availability:offline
-- ARGV[1] 1: the caller has seen the mirror whole on its present connection
-- ARGV[2] the longest a computation takes, in ms
-- Result: { key, actual type, rebuilt or kept, ... }, only for keys that do not fit.
-- A key may be unlinked only if the mirror was on this server before: the caller has seen it here,
-- or its certificate or its versions exist. Otherwise it may be somebody else's: it is kept, and
-- the caller reports it.
local wanted = { 'set', 'set', 'hash', 'string', 'hash', 'string', 'string', 'hash' }
local is, bad = {}, {}
for i, key in ipairs(KEYS) do
  local t = redis.call('TYPE', key)
  is[i] = type(t) == 'table' and t.ok or t
  if is[i] ~= 'none' and is[i] ~= wanted[i] then bad[#bad + 1] = i end
end
-- No string and no field of ours is longer than this (bytes), and no hash of moments has more
-- fields.
local longest, fields = 200, 20
for i = 4, 7 do
  if is[i] == 'string' and #redis.call('GETRANGE', KEYS[i], 0, longest) > longest then
    bad[#bad + 1], is[i] = i, 'too long'
  end
end
for i = 5, 8, 3 do
  if is[i] == 'hash' then
    local large = redis.call('HLEN', KEYS[i]) > fields
    for _, field in ipairs(large and {} or redis.call('HKEYS', KEYS[i])) do
      large = large or #field > longest or redis.call('HSTRLEN', KEYS[i], field) > longest
    end
    if large then bad[#bad + 1], is[i] = i, 'too large' end
  end
end
local certified
if is[4] == 'string' then
  certified = string.find(redis.call('GETRANGE', seeded, 0, 24), '^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%d%.%d%d%dZ$')
  if not certified then bad[#bad + 1], is[4] = 4, 'no time' end
end
if is[7] == 'string' then
  local left = redis.call('PTTL', KEYS[7])
  if left < 0 or left > tonumber(ARGV[2]) then bad[#bad + 1], is[7] = 7, 'without an end' end
end
local ours = ARGV[1] == '1' or certified or is[3] == 'hash'
local out, reseed = {}, false
for _, i in ipairs(bad) do
  if ours then
    redis.call('UNLINK', KEYS[i])
    if i <= 3 then reseed = true end
    -- Its contents are lost: judging waits as it does after heartbeats become required.
    if i == 8 then redis.call('HSET', KEYS[8], 'not_required', string.format('%.0f', nowms())) end
  end
  out[#out + 1], out[#out + 2], out[#out + 3] = KEYS[i], is[i], ours and 'rebuilt' or 'kept'
end
if reseed then
  redis.call('UNLINK', seeded)
  redis.call('HSET', KEYS[5], 'doubt', '1') -- who seeds just now has brought some of it before
end
return out
