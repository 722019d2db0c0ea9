-- server.lua: the server's clock and INFO. Prefix of every script that listens; nothing else in the
-- guard reads either.

local function server_us()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000000 + tonumber(t[2])
end

-- Returns the value after `name:` in INFO, '' if there is none. Finding plain text first is several
-- times as fast as matching a pattern against the whole.
local function told(info, name, what)
  if type(info) ~= 'string' then return '' end -- refused
  local _, at = string.find(info, name .. ':')
  return at and string.match(info, what, at + 1) or ''
end

-- turned_away(stats) -> how many clients the server has turned away, '' if it does not report that:
-- connections refused (maxclients, protected mode), logins refused, connections cut to free memory.
-- Redis 7.0 counts refused logins only among its error replies. No other counter proves that an
-- owner may be unable to beat; see docs/reference/faults.md.
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
-- turned away; '' for anything that this client may not read or the server does not offer. The last
-- four are counters that only grow during one life of a server, except that CONFIG RESETSTAT resets
-- them.
--
-- id and replication are the previous answer, or false. INFO server costs three times as much as
-- INFO replication, so it is only read when the replication id cannot vouch for the server: a
-- master takes a new one when it starts, when it is promoted, and when it gets its first replica. A
-- replica has its master's.
local function server(id, replication)
  local repl, stats = redis.pcall('INFO', 'replication'), redis.pcall('INFO', 'stats')
  local now = told(repl, 'role', '^master') ~= '' and told(repl, 'master_replid', '^%w+') or ''
  if not id or now ~= replication then -- unknown ids are not stored
    id = told(redis.pcall('INFO', 'server'), 'run_id', '^%w+')
  end
  return id, now, told(stats, 'total_connections_received', '^%d+'),
    told(stats, 'total_commands_processed', '^%d+'), told(stats, 'evicted_keys', '^%d+'), turned_away(stats)
end
