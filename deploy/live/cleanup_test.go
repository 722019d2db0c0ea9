package live

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/stretchr/testify/require"
)

// carts are a rule of an application that has sessions and carts.
const carts = `rules:
- name: carts
  category: staleQueueEntries
  delete: true
  keys: "cart:{user}"
  keep_if:
  - exists: "session:{user}"
  unless_lost:
  - exists: sessions
  grace: 1s
`

// cleanup is a fleet of two workers beside an application with users who live.
func cleanup(users int, more ...string) func(r *rig) {
	return func(r *rig) {
		rules := filepath.Join(r.TempDir(), "rules.yaml")
		require.NoError(r, os.WriteFile(rules, []byte(carts), 0o600))
		r.must("SET", "sessions", users)
		r.users("living", users, true)
		settings := append([]string{"RULES=" + rules, "CLEANUP_INTERVAL=5s", "CLEANUP_LEASE_TTL=2s"},
			beats...)
		r.several(2, "cleanup", append(settings, more...)...)
	}
}

// users have carts. Those without a session leave orphans.
func (r *rig) users(name string, n int, sessions bool) {
	r.Helper()
	for from := 0; from < n; from += 5000 {
		args := []any{"MSET"}
		for i := from; i < min(n, from+5000); i++ {
			user := fmt.Sprintf("%s%d", name, i)
			args = append(args, "cart:"+user, "apples")
			if sessions {
				args = append(args, "session:"+user, "1")
			}
		}
		r.must(args...)
	}
}

var scenesOfCleanup = []scene{
	{
		alert: "CleanupGone", fault: "kill -9 of all workers", fleet: cleanup(10),
		strike: func(r *rig) {
			for _, p := range r.jobs["cleanup"] {
				p.Kill()
			}
		},
	},
	{
		alert:  "CleanupNotRunning",
		fault:  "500,000 keys more, and `CLEANUP_REDIS_SHARE=0.005`: no cycle comes to its end in time",
		fleet:  cleanup(10, "CLEANUP_REDIS_SHARE=0.005"),
		strike: func(r *rig) { r.users("many", 250_000, true) },
	},
	{
		alert: "CleanupCycleSlow", fault: "40,000 keys more, and `CLEANUP_REDIS_SHARE=0.01`",
		fleet:  cleanup(10, "CLEANUP_REDIS_SHARE=0.01"),
		strike: func(r *rig) { r.users("many", 20_000, true) },
	},
	{
		alert: "CleanupAboutToTakeMost", fault: "80 of 100 sessions are lost, and their carts look like orphans",
		fleet: cleanup(100),
		strike: func(r *rig) {
			for i := range 80 {
				r.must("DEL", fmt.Sprint("session:living", i))
			}
		},
	},
	{
		alert: "CleanupRemovesMuch", fault: "the application leaves 1,500 orphans at once",
		fleet:  cleanup(3000),
		strike: func(r *rig) { r.users("gone", 1500, false) },
	},
}
