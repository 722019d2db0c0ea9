-- beat.lua: the heartbeat (behind owner.lua).
assert_life()
return signs()
