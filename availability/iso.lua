-- iso.lua: the server's clock. Not a script of its own.

-- iso(ms) is a time as heartbeats have it: ISO 8601, UTC, to the millisecond, always 24 characters,
-- so that the later of two is the larger string. Lua has no calendar here; the days are counted in
-- eras of 400 years that begin in March, so that a leap day is the last of a year.
local function iso(ms)
  local s = math.floor(ms / 1000)
  local day = math.floor(s / 86400) + 719468
  local era = math.floor(day / 146097)
  local of_era = day - era * 146097
  local year = math.floor((of_era - math.floor(of_era / 1460) + math.floor(of_era / 36524)
    - math.floor(of_era / 146096)) / 365)
  local of_year = of_era - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  local m = math.floor((5 * of_year + 2) / 153)
  local d = of_year - math.floor((153 * m + 2) / 5) + 1
  local month = m < 10 and m + 3 or m - 9
  if month <= 2 then year = year + 1 end
  local t = s % 86400
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%03dZ', year + era * 400, month, d,
    math.floor(t / 3600), math.floor(t / 60) % 60, t % 60, ms % 1000)
end

local function nowms()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end
