-- cpu.lua: how much processor time the server has used. Read-only.
-- KEYS[1] the witness: on a Cluster, of which server
-- Result: user and system time in s, as INFO has them; { '', '' } where this user may not ask
local info = redis.pcall('INFO', 'cpu')
return { told(info, 'used_cpu_user', '^[%d.]+'), told(info, 'used_cpu_sys', '^[%d.]+') }
