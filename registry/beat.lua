-- beat.lua: the heartbeat (behind settings.lua and owner.lua). ARGV[5] is the owner's GRACE, ms.
tell_grace(KEYS[4], ARGV[5], assert_life())
return reply()
