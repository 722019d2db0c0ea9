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
-- connections refused (maxclients, protected mode) or cut to free memory, and logins and commands
-- refused. No other counter proves that an owner may be unable to beat; see
-- docs/reference/faults.md.
local function turned_away(stats)
  local sum, errors = tonumber(told(stats, 'rejected_connections', '^%d+')), redis.pcall('INFO', 'errorstats')
  if not sum or type(errors) ~= 'string' then return '' end
  sum = sum + (tonumber(told(stats, 'evicted_clients', '^%d+')) or 0)
  for _, kind in ipairs({ 'WRONGPASS', 'NOAUTH', 'NOPERM' }) do
    sum = sum + (tonumber(told(errors, 'errorstat_' .. kind, '^count=(%d+)')) or 0)
  end
  return string.format('%.0f', sum)
end

-- server(id, replication) -> run id, replication id, connections, commands, clients turned away,
-- evicted keys; '' for anything that this client may not read or the server does not offer. The
-- last four are counters that only grow during one life of a server, except that CONFIG RESETSTAT
-- resets them.
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
    told(stats, 'total_commands_processed', '^%d+'), turned_away(stats), told(stats, 'evicted_keys', '^%d+')
end
