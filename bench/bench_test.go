package bench

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
)

// smoke is the size at which scenarios are only tried out.
const smoke = "smoke"

var (
	sizeFlag   = flag.String("size", smoke, "how much to measure: smoke, small, default or full")
	roundsFlag = flag.Int("rounds", 0, "how often each way is measured, medians are reported (0: as the size says, five by default)")
	onlyFlag   = flag.String("only", "", "measure only the scenarios whose name matches this")
	outFlag    = flag.String("out", "", "the page that a whole run writes (none: results are only logged)")
	beatFlag   = flag.Duration("beat", 0, "between two beats of the fleet in the steady state (0: as the size says)")
	claimsFlag = flag.Int("claims", 0, "held by each replica in the steady state (0: as the size says)")
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(neighbourAt); addr != "" {
		if err := beNeighbour(addr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	pgtest.Main(m)
}

// size says how much of everything is measured.
type size struct {
	rounds     int
	quick      int           // so many times the rounds for what takes a second
	scans      []int         // entries of a full scan, and candidates of a rule
	sweeps     []int         // entries of one dead owner
	neighbour  int           // entries swept beside a neighbour
	gone       int           // entries of the replica that dies
	deaths     int           // how many die, one after the other
	replicas   int           // in the steady state
	claims     int           // held by each of them
	beat       time.Duration // between two of theirs; it is watched for as many as there are rounds
	storm      int           // devices that register at once
	handovers  int
	waiters    int // contenders for a lease that is handed over
	reconciled int // claims compared
	contenders int // idle ones, with 1 and 16 partitions
	watched    time.Duration
	gateway    int // devices on one replica
	priced     int // entries of the registry whose calls have prices
	repeats    int // of each of these calls

	mitras int   // online
	beats  int   // heartbeats of a round
	found  []int // online, of whom all are found
	raw    int   // changes that nobody brings
}

// default takes less than 25 minutes on two quiet cores, small three.
var sizes = map[string]size{
	smoke: {
		rounds: 1, quick: 1, scans: []int{3000}, sweeps: []int{500, 3000}, neighbour: 5000, gone: 2000, deaths: 1,
		replicas: 4, claims: 500, beat: 2 * time.Second, storm: 2000, handovers: 1, waiters: 5, reconciled: 3000,
		contenders: 4, watched: time.Second, gateway: 50, priced: 3000, repeats: 100,
		mitras: 500, beats: 1000, found: []int{40, 2500}, raw: 10,
	},
	"small": {
		rounds: 1, quick: 1, scans: []int{100_000}, sweeps: []int{1000, 50_000}, neighbour: 50_000, gone: 20_000, deaths: 3,
		replicas: 10, claims: 2000, beat: 2 * time.Second, storm: 20_000, handovers: 5, waiters: 30, reconciled: 50_000,
		contenders: 10, watched: 5 * time.Second, gateway: 500, priced: 50_000, repeats: 500,
		mitras: 2000, beats: 10_000, found: []int{300, 10_000}, raw: 20,
	},
	"default": {
		rounds: 3, quick: 2, scans: []int{10_000, 1_000_000}, sweeps: []int{1000, 100_000}, neighbour: 200_000, gone: 50_000,
		deaths: 10, replicas: 100, claims: 10_000, beat: 4 * time.Second, storm: 50_000, handovers: 10, waiters: 100,
		reconciled: 300_000, contenders: 100, watched: 30 * time.Second, gateway: 5000, priced: 300_000, repeats: 2000,
		mitras: 10_000, beats: 30_000, found: []int{300, 10_000, 100_000}, raw: 100,
	},
	"full": {
		rounds: 5, quick: 3, scans: []int{10_000, 1_000_000, 10_000_000}, sweeps: []int{1000, 100_000, 1_000_000},
		neighbour: 300_000, gone: 50_000, deaths: 20, replicas: 100, claims: 10_000, beat: 30 * time.Second, storm: 50_000,
		handovers: 15, waiters: 100, reconciled: 1_000_000, contenders: 1000, watched: 30 * time.Second, gateway: 10_000,
		priced: 1_000_000, repeats: 5000, mitras: 10_000, beats: 50_000, found: []int{300, 10_000, 100_000}, raw: 500,
	},
}

// scenarios in the order of the report. Each is a file of that name.
var scenarios = []struct {
	name string
	run  func(r *rig)
}{
	{"full-scan", fullScanOf},
	{"sweep", sweep},
	{"neighbour", besideANeighbour},
	{"gone", gone},
	{"steady", steady},
	{"storm", storm},
	{"handover", handover},
	{"reconcile", reconcile},
	{"contenders", contenders},
	{"gateway", gateway},
	{"prices", prices},
	{"orphans", orphans},
	{"heartbeat", heartbeats},
	{"find", find},
	{"feed", fromRawSQL},
}

// TestMeasure runs the scenarios. A target that is missed is reported and fails nothing: a busy
// machine would. Work that was not done does fail.
func TestMeasure(t *testing.T) {
	s, ok := sizes[*sizeFlag]
	require.True(t, ok, "no such size: %s", *sizeFlag)
	if *roundsFlag > 0 {
		s.rounds = *roundsFlag
	}
	if *beatFlag > 0 {
		s.beat = *beatFlag
	}
	if *claimsFlag > 0 {
		s.claims = *claimsFlag
	}
	only, err := regexp.Compile(*onlyFlag)
	require.NoError(t, err)

	papers := make([]*paper, len(scenarios))
	t.Run("all", func(t *testing.T) {
		for i, scenario := range scenarios {
			if !only.MatchString(scenario.name) {
				continue
			}
			t.Run(scenario.name, func(t *testing.T) {
				if *sizeFlag == smoke { // whose numbers are nobody's
					t.Parallel()
				}
				p := &paper{Began: time.Now().UTC()}
				scenario.run(newRig(t, s, p))
				p.Ended = time.Now().UTC()
				t.Logf("%s\ntook %s", p.Body, p.Ended.Sub(p.Began).Round(time.Second))
				papers[i] = p
			})
		}
	})
	papers = slices.DeleteFunc(papers, func(p *paper) bool { return p == nil })
	t.Log("\n" + targets(papers))
	if *outFlag != "" {
		require.Len(t, papers, len(scenarios), "the page is of a whole run")
		require.NoError(t, write(*outFlag, papers))
	}
}
