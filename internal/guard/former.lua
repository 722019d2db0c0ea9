-- former.lua: prefix of every script that acts on what another client wrote.

-- former(beats, id, newest) -> the error to return, before any write, if this server's record of a
-- process is older than one that the process knows to be written: a former primary, or a server
-- that was set back. A missing record proves nothing. Clients drop a connection that answers so.
local function former(beats, id, newest)
  local last = tonumber(string.match(tostring(redis.pcall('HGET', beats, id)), '^%d+') or '')
  if last and last < tonumber(newest) then
    return redis.error_reply('READONLY former primary: it lacks the newest heartbeat of ' .. id)
  end
end
