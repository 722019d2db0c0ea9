package orphans

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
)

// By the end of two gaps the first mark is older than the grace. A lapse with the end of a
// disturbance is shorter. Without looks for 1.4 s, the evidence ends.
const (
	botsGrace = 8 * time.Second
	gap       = 5 * time.Second
	lapse     = 3 * time.Second
)

// A disturbance keeps anybody from looking, in its way, until it ends.
type disturbance struct {
	name       string
	begin, end func(w *world)
}

func disturbances() []disturbance {
	with := func(name, value string) func(w *world) {
		return func(w *world) { w.replaced(map[string]string{name: value}) }
	}
	return []disturbance{
		{
			"paused",
			func(w *world) { require.NoError(w, w.rdb.Set(w.Context(), layout.Paused(), "chaos", 0).Err()) },
			func(w *world) { require.NoError(w, w.rdb.Del(w.Context(), layout.Paused()).Err()) },
		},
		{"dry leaders", with("CLEANUP_DRY_RUN", "true"), with("CLEANUP_DRY_RUN", "false")},
		{
			"the rule is out",
			func(w *world) { w.replaced(map[string]string{"RULES": w.botsRules("other-bots", "bots:others:{bot}")}) },
			func(w *world) { w.replaced(map[string]string{"RULES": w.botsRules("bots", "bots:state:{bot}")}) },
		},
		{
			"nobody works",
			func(w *world) {
				for _, k := range w.workers {
					w.kill(k)
				}
			},
			func(w *world) { w.replaced(nil) },
		},
		{"the reference is lost", func(w *world) { w.setAside(true) }, func(w *world) { w.setAside(false) }},
	}
}

// botsRules are the rules of this row, with the rule of bots under a name and about keys.
func (w *world) botsRules(name, keys string) string {
	text, err := os.ReadFile(rulesFile(w.T))
	require.NoError(w, err)
	before, bots, found := strings.Cut(string(text), "- name: bots\n")
	require.True(w, found)
	bots = strings.Replace(bots, "grace: 1s", "grace: "+botsGrace.String(), 1)
	bots = strings.Replace(bots, "bots:state:{bot}", keys, 1)
	file := filepath.Join(w.TempDir(), "rules.yaml")
	require.NoError(w, os.WriteFile(file, []byte(before+"- name: "+name+"\n"+bots), 0o600))
	return file
}

// replaced kills the workers, and starts them with other settings.
func (w *world) replaced(settings map[string]string) {
	for name, value := range settings {
		w.settings[name] = value
	}
	for id, k := range w.workers {
		if k.Runs() {
			w.kill(k)
		}
		w.work(id)
	}
}

// setAside loses both sets of bots, or has them again.
func (w *world) setAside(lost bool) {
	w.meddle("sets of bots", func(p redis.Pipeliner) {
		for _, key := range []string{deployed, active} {
			if lost {
				p.Del(w.Context(), key)
			} else {
				p.SAdd(w.Context(), key, "warm")
			}
		}
		w.backend.mu.Lock()
		defer w.backend.mu.Unlock()
		for bot, plays := range w.backend.bots {
			if key := map[bool]string{true: active, false: deployed}[plays]; !lost {
				p.SAdd(w.Context(), key, bot)
			}
		}
	})
}

// evidenceInterrupted has a sign of life lapse for a moment before and after two disturbances that
// overlap, in which it was there and nobody looked. What lives stays: it was condemned for a moment
// only, twice.
func evidenceInterrupted(w *world) {
	w.without(&w.backend.noBots, true)
	w.replaced(map[string]string{"RULES": w.botsRules("bots", "bots:state:{bot}")})
	all := disturbances()
	r := rand.New(rand.NewPCG(seed(), 43))
	pairs := [][2]disturbance{{all[2], all[1]}} // of these nothing but the time without a look tells
	for _, i := range r.Perm(len(all))[:2] {
		pairs = append(pairs, [2]disturbance{all[i], all[(i+1+r.IntN(len(all)-1))%len(all)]})
	}
	for _, pair := range pairs {
		w.Logf("%s: %s, then %s", time.Since(w.began).Round(time.Millisecond), pair[0].name, pair[1].name)
		w.interrupted(pair[0], pair[1])
	}
	w.without(&w.backend.noBots, false)
	w.held("bots", "")
}

func (w *world) interrupted(first, second disturbance) {
	ctx := w.Context()
	w.backend.mu.Lock()
	bot := one(w.backend.rand, w.backend.bots, nil)
	plays := w.backend.bots[bot]
	w.backend.mu.Unlock()
	key := map[bool]string{true: active, false: deployed}[plays]
	sign := func(there bool) {
		w.backend.step("", func(ctx context.Context, p redis.Pipeliner) {
			if there {
				p.SAdd(ctx, key, bot)
			} else {
				p.SRem(ctx, key, bot)
			}
		})
	}
	marks := layout.Prefix + "orphan:marks:bots"
	sign(false)
	harness.Eventually(w.T, bot+" is marked", func() bool { return w.rdb.HExists(ctx, marks, "bots:state:"+bot).Val() })
	first.begin(w)
	sign(true)
	harness.Lasting(gap)
	second.begin(w)
	first.end(w)
	harness.Lasting(gap)
	sign(false)
	began := time.Now()
	second.end(w)
	harness.Lasting(lapse)
	sign(true)
	if lasted := time.Since(began); lasted > botsGrace {
		w.Logf("the machine was slow: the lapse lasted for %s, and proves nothing", lasted)
		w.backend.mu.Lock()
		delete(w.backend.bots, bot)
		w.backend.mu.Unlock()
		return
	}
	require.True(w, w.backend.there("bots:state:"+bot, ""), "%s went between %s and %s", bot, first.name, second.name)
}
