package harness

import (
	"context"
	"crypto/sha1"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/proxy"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
	"github.com/rollcall-redis/rollcall/registry"
)

// Test is what helpers need of a test, or of what embeds one.
type Test interface {
	require.TestingT
	// Helper and Context are those of testing.T.
	Helper()
	// Context ends with the test.
	Context() context.Context
}

// Becomes polls cond, and returns false after Patience.
func Becomes(cond func() bool) bool { return waittest.Becomes(PatiencePause, cond) }

// Eventually fails the test after Patience.
func Eventually(t Test, what string, cond func() bool) {
	t.Helper()
	require.True(t, Becomes(cond), "waited in vain until %s", what)
}

// Lasting waits while a fault lasts.
func Lasting(d time.Duration) { <-time.After(d) }

// Leader waits until a running replica holds the lease.
func (w *Environment) Leader() (leader *Replica) {
	w.Helper()
	Eventually(w, "a running replica leads", func() bool {
		leader = w.running(w.Holder())
		return leader != nil
	})
	return leader
}

// OneLeads waits until exactly one running replica reports that it leads, and holds the lease.
func (w *Environment) OneLeads() *Replica {
	w.Helper()
	var leader *Replica
	Eventually(w, "exactly one replica leads", func() bool {
		leader = nil
		holder, leaders := w.Holder(), 0.0
		for _, r := range w.Replicas() {
			says, err := r.Metric("janitor_leader")
			if err != nil {
				return false
			}
			if leaders += says; says == 1 && r.ID == holder {
				leader = r
			}
		}
		return leaders == 1 && leader != nil
	})
	return leader
}

// Holder returns who has the lease, if anybody.
func (w *Environment) Holder() string {
	id, _, _ := strings.Cut(w.Get(w.Context(), w.Lease()).Val(), "/")
	return id
}

// Listened waits until deletes may begin.
func (w *Environment) Listened() {
	w.Helper()
	Eventually(w, "the witness has listened for GRACE", func() bool {
		s, err := w.Leader().Status()
		witness := s.Janitor.Witness
		return err == nil && s.Janitor.Leading && !witness.LastTick.IsZero() && witness.HeldFor == 0
	})
}

// InPass waits for n more batches: the leader is in the middle of evicting.
func (w *Environment) InPass(n int64) {
	w.Helper()
	before := w.XLen(w.Context(), w.Log()).Val()
	Eventually(w, "a pass is under way", func() bool {
		return w.XLen(w.Context(), w.Log()).Val() >= before+n
	})
}

// Beats waits until every running replica has beaten n times.
func (w *Environment) Beats(n int) {
	w.Helper()
	for _, r := range w.Replicas() {
		var last time.Time
		for left := n; left >= 0; left-- { // the first is the one before
			Eventually(w, "replica "+r.ID+" beats", func() bool {
				s, err := r.Status()
				if err != nil || s.Registry.LastBeat.Equal(last) {
					return false
				}
				last = s.Registry.LastBeat
				return true
			})
		}
		n = min(n, 1) // the others have beaten as often in the meantime
	}
}

// Seed draws the same chances again if ROLLCALL_SEED names it.
var Seed = sync.OnceValue(func() uint64 {
	n, err := strconv.ParseUint(os.Getenv("ROLLCALL_SEED"), 10, 64)
	if err != nil {
		n = rand.Uint64()
	}
	fmt.Println("to replay: ROLLCALL_SEED=" + strconv.FormatUint(n, 10))
	return n
})

// OnThePage demands that docs/reference/faults.md, at root, names a row: itself, or by what it
// begins with and a *.
func OnThePage(t testing.TB, root, row string) {
	t.Helper()
	text, err := os.ReadFile(root + "/docs/reference/faults.md")
	require.NoError(t, err)
	for _, name := range regexp.MustCompile(`\b[A-Z]\w+\b\*?`).FindAllString(string(text), -1) {
		begins, more := strings.CutSuffix(name, "*")
		if name == row || more && strings.HasPrefix(row, begins) {
			return
		}
	}
	require.Fail(t, "docs/reference/faults.md does not name "+row)
}

// Calls with keys of their own are recognised by those; owner scripts, which share theirs, by text.

// KeyNames have no prefix.
var KeyNames registry.Layout

var batchID = regexp.MustCompile(`^\d+-[1-9]\d*$`)

// IsBatch matches guarded deletes.
func IsBatch(r proxy.Request) bool { return BatchesOf(KeyNames)(r) }

// BatchesOf is IsBatch for other key names.
func BatchesOf(l registry.Layout) func(proxy.Request) bool {
	return func(r proxy.Request) bool {
		_, args := r.Script()
		return r.On(l.Log(), l.Lease(), l.Witness()) && len(args) > 6 &&
			batchID.MatchString(args[0]) && args[6] != "commands"
	}
}

// IsTick matches ticks of the witness.
func IsTick(r proxy.Request) bool { return r.On(KeyNames.Witness()) }

// IsBeat matches beats.
func IsBeat(r proxy.Request) bool { return Named(r) == "beat" }

// IsRegister matches registrations.
func IsRegister(r proxy.Request) bool { return Named(r) == "register" }

// IsRelease matches releases.
func IsRelease(r proxy.Request) bool { return Named(r) == "release" }

// IsHeal matches heals.
func IsHeal(r proxy.Request) bool { return Named(r) == "heal" }

// IsAcquire matches attempts to take the lease.
func IsAcquire(r proxy.Request) bool {
	return len(r) > 3 && r[0] == "SET" && r[1] == KeyNames.Lease() && r[3:].Has("NX")
}

// IsServed matches all but requests about the connection itself.
func IsServed(r proxy.Request) bool {
	return !slices.Contains([]string{"HELLO", "AUTH", "CLIENT", "SELECT", "PING", "QUIT", "RESET"}, r[0])
}

// known are the names of scripts, by SHA1.
var known = struct {
	sync.Mutex
	names map[string]string
}{names: map[string]string{}}

var scriptHead = regexp.MustCompile(`(?m)^-- (\w+)\.lua:`)

// Named returns the called script's name, from the last file in its text; "" until that was sent,
// as it is to each server once.
func Named(r proxy.Request) string {
	if len(r) < 2 || !strings.HasPrefix(r[0], "EVAL") {
		return ""
	}
	known.Lock()
	defer known.Unlock()
	if strings.HasPrefix(r[0], "EVALSHA") {
		return known.names[strings.ToLower(r[1])]
	}
	sha := fmt.Sprintf("%x", sha1.Sum([]byte(r[1])))
	if heads := scriptHead.FindAllStringSubmatch(r[1], -1); heads != nil {
		known.names[sha] = heads[len(heads)-1][1]
	}
	return known.names[sha]
}

// BatchIDOf returns the id of a guarded delete's log record.
func BatchIDOf(r proxy.Request) string {
	_, args := r.Script()
	return args[0]
}

// Proxy connects one process to Redis.
type Proxy struct {
	*proxy.Proxy
	login   string       // as in the process' REDIS_URL
	batches *proxy.Score // answers to guarded deletes
}

// NewProxy counts answers to guarded deletes.
func NewProxy(t *testing.T, to string) *Proxy {
	p := &Proxy{Proxy: proxy.New(t, to)}
	p.batches = p.Answers(func(r proxy.Request) bool {
		_ = Named(r) // learns a script's text
		return IsBatch(r)
	})
	return p
}

// Verdicts returns the answers to guarded deletes.
func (p *Proxy) Verdicts() map[string]int { return p.batches.Counts() }

// Unanswered counts guarded deletes whose outcome is unknown here.
func (p *Proxy) Unanswered() int { return p.batches.Unanswered() }
