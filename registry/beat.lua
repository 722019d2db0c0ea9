-- beat.lua: the heartbeat (behind settings.lua and owner.lua). ARGV[5] is the owner's WARM, ms.
tell_warm(KEYS[4], ARGV[5], assert_life())
return reply()
