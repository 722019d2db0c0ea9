-- ask.lua: (after same.lua) answers questions of it. Read-only.
-- KEYS[1] a key that is read  ARGV: for each question the number of its words, and these
-- Result: the answers to as many as fit into about a millisecond, at least one
local all, i = {}, 1
while ARGV[i] and spent <= 1000 do
  local last = i + tonumber(ARGV[i])
  all[#all + 1] = probe(unpack(ARGV, i + 1, last))
  i = last + 1
end
return all
