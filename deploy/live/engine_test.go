package live

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/stretchr/testify/require"
)

// Scenes of what all programs have, with ingest.
var scenesOfTheEngine = []scene{
	{
		alert: "RollcallRedisFull", fault: "`maxmemory` is what Redis uses",
		fleet:  ingest(),
		strike: func(r *rig) { r.must("CONFIG", "SET", "maxmemory", "1mb") },
	},
	fileFailing(),
	{
		alert:  "RollcallNobodyLeads",
		fault:  "the replicas' user of Redis loses the right to `janitor:leader`",
		fleet:  ingest(),
		strike: func(r *rig) { r.deny("~[^j]*", "~janitor:[^l]*", "~janitor:lo*") },
	},
	{
		alert: "RollcallTwoLeaders", fault: "a second fleet, on another Redis, is scraped as the same job",
		fleet: ingest(),
		strike: func(r *rig) {
			other := newRig(r)
			other.several(1, "ingest", quick...)
			r.jobs["ingest"] = append(r.jobs["ingest"], other.jobs["ingest"]...)
			r.scrape()
		},
	},
	{
		alert: "RollcallHeld", fault: "a replica with another `HEARTBEAT_TTL` joins",
		fleet: ingest(),
		strike: func(r *rig) {
			r.start("ingest", slices.Concat(quick, []string{"HEARTBEAT_TTL=6s"})...)
		},
	},
	{
		alert: "RollcallDryRun", fault: "`JANITOR_DRY_RUN` is true", fleet: ingest("JANITOR_DRY_RUN=true"),
	},
	{
		alert: "RollcallPassesFail", fault: "the replicas' user of Redis loses the right to `HSCAN`",
		fleet:  ingest(),
		strike: func(r *rig) { r.must("ACL", "SETUSER", "default", "-hscan") },
	},
	{
		alert: "RollcallLeaseFlaps",
		fault: "one leader after the other is suspended (SIGSTOP) until another leads, five times",
		fleet: ingest("JANITOR_LEASE_TTL=1200ms", "HEARTBEAT_INTERVAL=3s", "HEARTBEAT_TTL=9s"),
		strike: func(r *rig) {
			for range 5 {
				var leader *replica
				r.await("somebody leads", func() bool { leader = r.leader(); return leader != nil })
				require.NoError(r, leader.Signal(syscall.SIGSTOP))
				r.await("another leads", func() bool { l := r.leader(); return l != nil && l != leader })
				require.NoError(r, leader.Signal(syscall.SIGCONT))
				lost := `sum(janitor_lease_transitions_total{event="lost", instance="` + leader.http +
					`"}) > bool 0`
				r.await("it knows that it has lost its lease", func() bool { return r.is(1, lost) })
			}
		},
	},
}

func fileFailing() scene {
	var file string
	return scene{
		alert: "RollcallFileFailing", fault: "the file of `ADMIN_TOKEN_FILE` is emptied",
		fleet: func(r *rig) {
			file = filepath.Join(r.TempDir(), "token")
			require.NoError(r, os.WriteFile(file, []byte("0123456789abcdef0123"), 0o600))
			ingest("ADMIN_TOKEN_FILE=" + file)(r)
		},
		strike: func(r *rig) { require.NoError(r, os.WriteFile(file, nil, 0o600)) },
	}
}
