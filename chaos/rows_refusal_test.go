package chaos

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
)

// refusalRows: Redis answers, with a no that says why. Those that a server of one's own can be made
// to give are real and last longer than the TTL, so that everybody's heartbeat runs out; of a
// Cluster and of a large file being loaded the proxy says it.
var refusalRows = []row{
	{25, "NoReplicas", false, 60, nil, refused("NOREPLICAS", noReplicas)},
	{25, "ReadOnly", false, 60, nil, refused("READONLY", readOnly)},
	{25, "MasterDown", false, 60, nil, refused("MASTERDOWN", masterDown)},
	{25, "Misconfigured", false, 60, nil, refused("MISCONF", misconfigured)},
	{25, "RefusedOnTheWay", false, 60, nil, under(func() fault { return &answered{} }, nothingWent)},
}

func refused(why string, how func(w *environment) (over func())) func(w *environment) {
	return under(func() fault { return &refusal{why: why, how: how} }, nothingWent)
}

// refusal has the server refuse to write.
type refusal struct {
	calm
	why string
	how func(w *environment) (over func())
}

func (f *refusal) fail(w *environment) {
	asked, begun := w.asked(), time.Now()
	over := f.how(w)
	w.told(f.why)
	harness.Lasting(harness.TTL + harness.Interval/2 - time.Since(begun))
	over()
	w.heals(time.Now())
	asked.noStorm(w, time.Since(begun))
	f.hit(asked.errors(f.why))
}

// told waits until every replica says that its heartbeat is refused, and by which word: it knows a
// refusal from a silence.
func (w *environment) told(why string) {
	w.T.Helper()
	harness.Eventually(w.T, "everybody knows "+why, func() bool {
		for _, r := range w.Replicas() {
			if s, err := r.Status(); err != nil || !strings.Contains(s.Registry.Failing["heartbeat"], why) {
				return false
			}
		}
		return true
	})
}

func noReplicas(w *environment) (over func()) {
	w.config("min-replicas-to-write", "1")
	return func() { w.config("min-replicas-to-write", "0") }
}

// nowhere is a master that nobody is.
var nowhere = []any{"REPLICAOF", "127.0.0.1", "1"}

func readOnly(w *environment) (over func()) {
	require.NoError(w.T, w.Do(w.T.Context(), nowhere...).Err())
	return func() { require.NoError(w.T, w.Do(w.T.Context(), "REPLICAOF", "NO", "ONE").Err()) }
}

func masterDown(w *environment) (over func()) {
	w.config("replica-serve-stale-data", "no")
	return readOnly(w)
}

// misconfigured: snapshots fail, since a folder stands where the file belongs, and the server is to
// stop then.
func misconfigured(w *environment) (over func()) {
	ctx := w.T.Context()
	require.NoError(w.T, os.Mkdir(filepath.Join(w.Server.Dir(), "dump.rdb"), 0o700))
	w.config("save", "3600 1000000")
	require.NoError(w.T, w.BgSave(ctx).Err())
	harness.Eventually(w.T, "the snapshot fails", func() bool { return harness.InfoOf(w.T, w.Client, "persistence", "rdb_last_bgsave_status") == "err" })
	return func() { w.config("stop-writes-on-bgsave-error", "no") }
}

// answered is what one server does not say: the proxies do, to everything, each for longer than the
// witness' GAP.
type answered struct{ calm }

var answers = []string{
	"LOADING Redis is loading the dataset in memory",
	"CLUSTERDOWN The cluster is down",
	"TRYAGAIN Multiple keys request during rehashing of slot",
}

func (f *answered) fail(w *environment) {
	for _, answer := range answers {
		begun := time.Now()
		var rules []*proxy.Rule
		for _, r := range w.Replicas() {
			rules = append(rules, r.Proxy.AnswerWith(harness.IsServed, answer, -1))
		}
		why, _, _ := strings.Cut(answer, " ")
		w.told(why)
		harness.Lasting(harness.TTL/2 - time.Since(begun))
		for i, rule := range rules {
			rule.End()
			f.hit(rule.Hits())
			noStorm(w, w.Replicas()[i], rule.Hits(), time.Since(begun))
		}
		w.heals(time.Now())
	}
}

// asked counts what replicas ask and what the server answers, as their proxies see it.
type asked map[*harness.Replica]*proxy.Score

func (w *environment) asked() asked {
	a := make(asked)
	for _, r := range w.Replicas() {
		a[r] = r.Proxy.Answers(harness.IsServed)
	}
	return a
}

// errors is how many answers were errors of that name.
func (a asked) errors(name string) (n int) {
	for _, s := range a {
		n += s.Counts()["error "+name]
	}
	return n
}

// mostASecond is far above what a replica asks in these scenarios, calm or not, and far below what
// one that tries again blindly does.
const mostASecond = 120

func (a asked) noStorm(w *environment, took time.Duration) {
	w.T.Helper()
	for r, s := range a {
		total := s.Unanswered()
		for _, n := range s.Counts() {
			total += n
		}
		noStorm(w, r, total, took)
	}
}

func noStorm(w *environment, r *harness.Replica, requests int, took time.Duration) {
	w.T.Helper()
	w.T.Logf("replica %s asked %d times in %v", r.ID, requests, took.Round(time.Millisecond))
	require.Less(w.T, requests, int(mostASecond*took.Seconds()), "replica %s tries again blindly", r.ID)
}
