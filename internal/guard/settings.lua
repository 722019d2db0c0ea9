-- settings.lua: what owners report to the witness. Prefix of beat.lua, boot.lua and witness.lua.

-- count(v) returns the number in a field of the witness, or nil if the witness cannot have written
-- it. To Lua "nan", "1e300" and "-5" are numbers too, and NaN compares as never held.
local function count(v) return v and #v < 16 and string.match(v, '^%d+$') and tonumber(v) or nil end

-- brief(v) returns the beginning of a field: anybody can write any number of bytes there, and what
-- a script returns has to fit into its caller's memory.
local function brief(v) return v and string.sub(v, 1, 64) end

-- boot_time(v, now) returns v if it can be the time in a boot token: µs, 16 digits, at most a year
-- ahead of now (ms). With the largest number on record, all later boots would get the same token.
local function boot_time(v, now)
  return v and #v == 16 and string.match(v, '^%d+$') and tonumber(v) <= (now + 366 * 86400000) * 1000 and v
end

-- tell_grace(key, grace, at, boot) compares an owner's GRACE with the witness' at each beat, since
-- an owner need not contend. If they differ, the witness' becomes 0, which no fleet uses: the next
-- listener notices, and no other owner's beat hides it. It writes nothing until somebody listens.
-- It returns when entries may last have been lost, and when the registry was last emptied.
--
-- boot, if given, is the time in the owner's boot token, and raises the highest one on record;
-- until somebody listens, only if it is ahead of the clock.
local function tell_grace(key, grace, at, boot)
  local w = redis.pcall('HMGET', key, 'grace', 'lost', 'boot', 'emptied')
  if boot and not w.err and boot > (boot_time(w[3], at) or '') and (w[1] or tonumber(boot) >= (at + 1) * 1000) then
    redis.pcall('HSET', key, 'boot', boot)
  end
  if not w.err and w[1] and w[1] ~= grace then redis.pcall('HSET', key, 'grace', '0') end
  return brief(w[2]) or '', w[4]
end
