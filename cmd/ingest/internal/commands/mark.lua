-- mark.lua (after state.lua): the mark of a queued command that was sent. It is kept in the queue
-- itself, as a pending entry of the group, so that Redis cannot lose the one and keep the other.
-- commands:state:<id> names who sent it.
--
-- A life here is '<attempt>.<life>'. Each attempt to send or settle a command has a higher number.
-- A call of an earlier attempt was given up and lands late: the command may have been sent since.

-- same(life, mine) -> whether both are one life; whether life's attempt is the later one
local function same(life, mine)
  local n, of = string.match(life, '^(%d+)%.(.+)$')
  local m, my = string.match(mine, '^(%d+)%.(.+)$')
  return of == my, of == my and tonumber(n) > tonumber(m)
end

-- marked(queue, group, entry) -> ms since it was sent; nil if it was not
local function marked(queue, group, entry)
  local pending = redis.pcall('XPENDING', queue, group, entry, entry, 1)
  if pending.err then
    if string.find(pending.err, '^NOGROUP') then return nil end
    error(pending.err)
  end
  return pending[1] and pending[1][3]
end
