-- serverid.lua: the run id of the server that has the registry. Read-only.
-- KEYS[1] registry
-- Result: the run id; '' if this user may not read it, or it is not offered
local info = redis.pcall('INFO', 'server')
return type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
