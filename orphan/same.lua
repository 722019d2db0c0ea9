-- same.lua: the part of a script that sends commands again and compares their answers with those
-- of a look. It precedes other files. See replyText for the format of answers.

local function text(n) return string.format('%.0f', n) end

-- element(value): the text of this element in an array.
local function element(value)
  if not value then return '_' end
  if type(value) == 'number' then return ':' .. text(value) end
  if type(value) == 'string' then return '#' .. redis.sha1hex(value) end
  local elements = {}
  for i = 1, #value do elements[i] = element(value[i]) end
  return '*' .. table.concat(elements, '|')
end

-- same(want, got): the answer is unchanged; see replyText for the forms of want.
local function same(want, got)
  local form, rest = string.sub(want, 1, 1), string.sub(want, 2)
  if type(got) == 'table' and got.ok then got = got.ok end
  if form == '_' then return got == false end
  if form == ':' then return type(got) == 'number' and text(got) == rest end
  if form == '=' then return type(got) == 'string' and tonumber(got) == tonumber(rest) end
  if form == '$' then return got == rest end
  if form == '#' then return type(got) == 'string' and redis.sha1hex(got) == rest end
  return form == '*' and type(got) == 'table' and not got.err and element(got) == want
end

local function all_same(seen)
  for _, s in ipairs(seen) do
    if not same(s[1], redis.pcall(unpack(s, 2))) then return false end
  end
  return true
end
