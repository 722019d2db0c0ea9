-- keys.lua: the mirror's keys. Not a script of its own: other scripts begin with it, after `local
-- from = n`, the index in KEYS of the first of the four. Keys of one mitra are built from them,
-- so on a Cluster all must be in one slot.
local online, deactivated, version, seeded = unpack(KEYS, from, from + 3)
local prefix = string.sub(online, 1, -14) -- all before mitras:online

-- whole() reports whether the mirror is whole. A key of another type does not count.
local function whole()
  local at = redis.pcall('GETRANGE', seeded, '0', '24')
  return type(at) == 'string' and #at == 24
end

local function capacity(id) return prefix .. 'mitra:capacity:' .. id end
local function heartbeat(id) return prefix .. 'mitra:heartbeat:' .. id end
local function unheard(id) return prefix .. 'mitra:unheard:' .. id end
