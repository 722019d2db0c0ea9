-- scan.lua: one page of a set or hash of the mirror, without what is too long to be ours. That is
-- removed: nobody could read a page that has it.
-- KEYS[1] a set, or the hash of versions  KEYS[2] the hash of versions
-- ARGV[1] cursor  ARGV[2] page size
-- Result: { next cursor, how many were removed, id, version, ... }; of a set, only members without
--   a version
local kind = redis.call('TYPE', KEYS[1])
local hash = (type(kind) == 'table' and kind.ok or kind) == 'hash'
local page = redis.call(hash and 'HSCAN' or 'SSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local out, step = { page[1], 0 }, hash and 2 or 1
for i = 1, #page[2], step do
  local name, value = page[2][i], hash and page[2][i + 1] or ''
  if #name > 64 or #value > 64 then
    out[2] = out[2] + redis.call(hash and 'HDEL' or 'SREM', KEYS[1], name)
  elseif hash or redis.call('HSTRLEN', KEYS[2], name) == 0 then
    out[#out + 1], out[#out + 2] = name, value
  end
end
out[2] = tostring(out[2])
return out
