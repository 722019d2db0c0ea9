-- fields.lua: the beginnings of some fields of a hash. HMGET would return all that somebody has
-- written there, however long it is.
-- KEYS[1] hash  ARGV[1..] fields
-- Result: the values in order; nil: there is none.
local found = redis.pcall('HMGET', KEYS[1], unpack(ARGV))
if found.err then return found end
for i = 1, #ARGV do found[i] = found[i] and string.sub(found[i], 1, 1024) end
return found
