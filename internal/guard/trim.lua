-- trim.lua: trims the log to the newest records that take so many bytes. Rights are checked first:
-- a refused command would be counted among the clients turned away.
-- KEYS[1] log  ARGV[1] bytes  ARGV[2] the least records to keep
-- ARGV[3] records to keep if the size is unknown
-- Result: { 1 | 0 the size is known, 1 | 0 it may be trimmed }
local function may(...)
  if not redis.acl_check_cmd then return true end
  local known, allowed = pcall(redis.acl_check_cmd, ...)
  return known and allowed
end

local keep, used = tonumber(ARGV[3]), nil
if may('MEMORY', 'USAGE', KEYS[1]) and may('XLEN', KEYS[1]) then
  used = redis.pcall('MEMORY', 'USAGE', KEYS[1]) or 0 -- no key
end
local sized = type(used) == 'number'
if sized then
  if used <= tonumber(ARGV[1]) then return { 1, 1 } end
  keep = math.max(tonumber(ARGV[2]), math.floor(redis.call('XLEN', KEYS[1]) * ARGV[1] / used))
end
local trims = may('XTRIM', KEYS[1], 'MAXLEN', '1') and type(redis.pcall('XTRIM', KEYS[1], 'MAXLEN', '~', keep)) == 'number'
return { sized and 1 or 0, trims and 1 or 0 }
