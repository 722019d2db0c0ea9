-- server.lua: what the server says of itself: its clock, and INFO. Not a script of its own: every
-- script that listens begins with it. Nothing else of the guard asks for either.

local function server_us()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000000 + tonumber(t[2])
end

-- told(info, name, what) is what INFO says behind `name:`, '' if it does not say it. A search for a
-- text without special characters is several times as fast as a pattern over the whole text.
local function told(info, name, what)
  if type(info) ~= 'string' then return '' end -- refused
  local _, at = string.find(info, name .. ':')
  return at and string.match(info, what, at + 1) or ''
end

-- turned_away(stats) -> how many clients the server has turned away, '' if it does not offer that:
-- connections refused (maxclients, protected mode), logins refused, and connections cut for want of
-- memory for clients. Redis 7.0 counts refused logins among its error replies alone. Nothing else
-- that a server counts proves that an owner may be unable to beat; docs/faults.md has the rest.
local function turned_away(stats)
  local rejected = tonumber(told(stats, 'rejected_connections', '^%d+'))
  if not rejected then return '' end
  local logins = told(stats, 'acl_access_denied_auth', '^%d+')
  if logins == '' then
    local errors = redis.pcall('INFO', 'errorstats')
    if type(errors) ~= 'string' then return '' end
    logins = told(errors, 'errorstat_WRONGPASS', '^count=(%d+)')
  end
  local cut = tonumber(told(stats, 'evicted_clients', '^%d+')) or 0
  return string.format('%.0f', rejected + (tonumber(logins) or 0) + cut)
end

-- server(id, replication) -> run id, replication id, connections, commands, evicted_keys, clients
-- turned away. What this client may not read, or what the server does not offer, is ''. The last
-- four are counters that only grow in one life of a server, unless CONFIG RESETSTAT makes them fall.
--
-- id and replication are what it answered before, or false. INFO server costs three times what INFO
-- replication does, so it is asked only if the other may not vouch for it: a master takes a new
-- replication id when it starts, when it is promoted, and when it gets its first replica. A replica
-- shares its master's.
local function server(id, replication)
  local repl, stats = redis.pcall('INFO', 'replication'), redis.pcall('INFO', 'stats')
  local now = told(repl, 'role', '^master') ~= '' and told(repl, 'master_replid', '^%w+') or ''
  if not id or now ~= replication then -- none is stored where none can be told
    id = told(redis.pcall('INFO', 'server'), 'run_id', '^%w+')
  end
  return id, now, told(stats, 'total_connections_received', '^%d+'),
    told(stats, 'total_commands_processed', '^%d+'), told(stats, 'evicted_keys', '^%d+'), turned_away(stats)
end
