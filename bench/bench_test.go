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
	fullScans  []int         // live entries
	sweeps     []int         // entries of one dead owner
	oneByOne   int           // the largest sweep that the dearest peer is measured at
	neighbour  int           // entries swept beside a neighbour
	gone       int           // entries of the replica that dies
	deaths     int           // how many die, one after the other
	replicas   int           // in the steady state
	claims     int           // held by each of them
	beat       time.Duration // between two of theirs; it is watched for as many as there are rounds
	storm      int           // devices that register at once
	handovers  int
	waiters    int   // contenders for a lease that is handed over
	reconciled int   // claims compared
	contenders []int // idle ones, each with 1 and 16 partitions
	watched    time.Duration
	gateway    int // devices on one replica
	priced     int // entries of the registry whose calls have prices
	repeats    int // of each of these calls

	quick   int   // so many more rounds of what takes a second
	mitras  int   // online
	beats   int   // heartbeats of a round
	found   []int // online, of whom all are found
	foundIn int   // a round finds so many in all, or everybody once
	accepts int   // sessions of a round
	raw     int   // changes that nobody brings
	polls   time.Duration
}

// default takes 25 minutes on two quiet cores, small three.
var sizes = map[string]size{
	smoke: {
		rounds: 1, fullScans: []int{3000}, sweeps: []int{500, 3000}, oneByOne: 500, neighbour: 5000, gone: 2000,
		deaths: 1, replicas: 4, claims: 500, beat: 2 * time.Second, storm: 2000, handovers: 1, waiters: 5,
		reconciled: 3000, contenders: []int{4}, watched: time.Second, gateway: 50, priced: 3000,
		repeats: 100, quick: 1, mitras: 500,
		beats: 1000, found: []int{40, 2500}, foundIn: 2500, accepts: 20, raw: 10, polls: time.Second,
	},
	"small": {
		rounds: 1, fullScans: []int{100_000}, sweeps: []int{1000, 50_000}, oneByOne: 1000, neighbour: 50_000, gone: 20_000,
		deaths: 3, replicas: 10, claims: 2000, beat: 2 * time.Second, storm: 20_000, handovers: 5, waiters: 30,
		reconciled: 50_000, contenders: []int{10}, watched: 5 * time.Second, gateway: 500,
		priced: 50_000, repeats: 500, quick: 1, mitras: 2000,
		beats: 10_000, found: []int{300, 10_000}, foundIn: 10_000, accepts: 100, raw: 20, polls: 3 * time.Second,
	},
	"default": {
		rounds: 3, fullScans: []int{10_000, 100_000, 1_000_000}, sweeps: []int{1000, 100_000}, oneByOne: 1000, neighbour: 200_000,
		gone: 50_000, deaths: 10, replicas: 100, claims: 10_000, beat: 4 * time.Second, storm: 50_000, handovers: 10, waiters: 100,
		reconciled: 300_000, contenders: []int{100}, watched: 30 * time.Second, gateway: 5000,
		priced: 300_000, repeats: 2000, quick: 2, mitras: 10_000,
		beats: 30_000, found: []int{300, 10_000, 100_000}, foundIn: 50_000, accepts: 500, raw: 200, polls: 15 * time.Second,
	},
	"full": {
		rounds: 5, fullScans: []int{10_000, 100_000, 1_000_000, 10_000_000}, sweeps: []int{1000, 100_000, 1_000_000}, oneByOne: 100_000,
		neighbour: 300_000, gone: 50_000, deaths: 20, replicas: 100, claims: 10_000, beat: 30 * time.Second, storm: 50_000, handovers: 15,
		waiters: 100, reconciled: 1_000_000, contenders: []int{10, 100, 1000},
		watched: 30 * time.Second, gateway: 10_000, priced: 1_000_000, repeats: 5000,
		quick: 3, mitras: 10_000, beats: 50_000, found: []int{300, 10_000, 100_000}, foundIn: 100_000, accepts: 1000, raw: 500, polls: time.Minute,
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
	{"cluster", beyondOneServer},
	{"prices", prices},

	{"orphans", orphans},
	{"orphans-rules", manyRules},
	{"orphans-names", longNames},
	{"availability-heartbeat", heartbeats},
	{"availability-find", find},
	{"availability-apply", apply},
	{"availability-accept", acceptAndEnd},
	{"availability-mirror", mirrorAndReconcile},
	{"availability-feed", fromRawSQL},
	{"availability-polls", polls},
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
				p := newPaper()
				scenario.run(newRig(t, s, p))
				p.end()
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
