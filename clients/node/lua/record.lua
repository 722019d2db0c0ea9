-- record.lua: this owner's record in the hash of beats (after former.lua). A record is
-- last/ttl/due/born/back/state; package internal/guard/doubt documents it, and decides by it.
--
-- All scripts of an owner have the same first KEYS and ARGV:
-- KEYS[1] heartbeat  KEYS[2] roster  KEYS[3] index
-- KEYS[4] witness  KEYS[5] registry  KEYS[6] beats
-- ARGV[1] instance   ARGV[2] boot token  ARGV[3] heartbeat TTL ms  ARGV[4] '1': maintain the index
-- ARGV[5] INTERVAL ms  ARGV[6] 'h': it holds a claim, 'i': none
-- ARGV[7] ms of the newest beat that it knows to be written; '0': unknown, or not to be checked
-- ARGV[8] what channels begin with: Pub/Sub knows no databases. '' in database 0
-- The script's own follow.

-- Returns the server's time in ms.
local function server_ms()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

local function text(n) return string.format('%.0f', n) end

-- parts(record) -> last, ttl, due, born, back, state; nil if it is none of ours.
local function parts(record)
  if type(record) ~= 'string' or #record > 128 then return end
  local p = { string.match(record, '^(%d+)/(%d+)/(%d+)/(%d+)/(%d+)/([hibp])$') }
  for i = 1, 5 do
    if not p[i] or #p[i] > 15 then return end
    p[i] = tonumber(p[i])
  end
  if p[2] > 0 then return unpack(p) end
end

local last, ttl, due, born, back, state = parts(redis.pcall('HGET', KEYS[6], ARGV[1]))
local found = last

-- prove(now, is) records a proof of life, as doubt.Record.Proves.
local function prove(now, is)
  local interval = tonumber(ARGV[5])
  if not last or state == 'i' or state == 'b' then
    born, back = now, back or 0
  elseif now - last >= math.max(due, ttl - due) then
    back = now
  end
  last, ttl, state = now, tonumber(ARGV[3]), is
  due = interval + math.min(math.floor(interval / 2), 2000) + math.floor(interval / 5)
  -- A hash that cannot be written must not end the owner: the leader then keeps a record for it.
  local record = table.concat({ text(last), text(ttl), text(due), text(born), text(back), state }, '/')
  if type(redis.pcall('HSET', KEYS[6], ARGV[1], record)) == 'table' then last = nil end
end

-- publish(instance, message): the channel of an instance is named like its heartbeat, and that of
-- the leader like that of an empty id. A missed message only delays its owner.
local function publish(instance, message)
  redis.pcall('PUBLISH', ARGV[8] .. string.sub(KEYS[1], 1, #KEYS[1] - #ARGV[1]) .. instance, message)
end
