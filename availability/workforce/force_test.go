package workforce

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// pass lets a bubble's time pass.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func plain(*Config, *program) {}

func TestAppsGoOnlineAndSendAHeartbeatEachInterval(t *testing.T) {
	inBubble(t, plain, func(t *testing.T, f *Force, p *program) {
		pass(70 * time.Second)
		c := f.Counts()
		require.Equal(t, 20, c.Online)
		require.Equal(t, 20, c.WentOnline)
		require.GreaterOrEqual(t, c.Heartbeats, 20*5)
		require.Zero(t, c.NotOnline+c.Failed)
		require.Empty(t, f.differences(p.sides()))
		p.mu.Lock()
		defer p.mu.Unlock()
		for id, beats := range p.beats {
			for i := 1; i < len(beats); i++ {
				require.Equal(t, 10*time.Second, beats[i].Sub(beats[i-1]), id)
			}
		}
		require.Contains(t, p.seen, "one")
		require.Contains(t, p.seen, "two")
	})
}

func TestAnAppThatIsToldThatItIsNotOnlineGoesOnlineAgain(t *testing.T) {
	inBubble(t, plain, func(t *testing.T, f *Force, p *program) {
		pass(30 * time.Second)
		id := f.IDs()[0]
		p.mu.Lock()
		p.online[id] = false
		p.mu.Unlock()
		require.Len(t, f.differences(p.sides()), 1, "the app does not know yet")
		pass(11 * time.Second)
		require.Equal(t, 1, f.Counts().NotOnline)
		require.Equal(t, 21, f.Counts().WentOnline)
		require.Empty(t, f.differences(p.sides()))
	})
}

func TestTheDeadSendNothingAndComeBack(t *testing.T) {
	inBubble(t, plain, func(t *testing.T, f *Force, p *program) {
		pass(30 * time.Second)
		killed := f.Kill(5)
		require.Len(t, killed, 5)
		pass(time.Second)
		require.Equal(t, 5, f.Counts().Dead)
		asked := func() (n int) {
			p.mu.Lock()
			defer p.mu.Unlock()
			for _, id := range killed {
				n += len(p.beats[id])
			}
			return n
		}
		before := asked()
		pass(time.Hour)
		require.Equal(t, before, asked())
		require.Len(t, f.differences(p.sides()), 5, "nobody has noticed")
		require.Equal(t, 5, f.Revive(killed...))
		require.Zero(t, f.Revive(killed...))
		pass(20 * time.Second)
		require.Zero(t, f.Counts().Dead)
		require.Greater(t, asked(), before)
		require.Empty(t, f.differences(p.sides()))
	})
}

func TestAppsRestAndDieByThemselvesUntilAllIsToBeQuiet(t *testing.T) {
	inBubble(t, func(c *Config, _ *program) { c.Rest, c.Die = 0.1, 0.1 }, func(t *testing.T, f *Force, p *program) {
		pass(5 * time.Minute)
		c := f.Counts()
		require.Positive(t, c.WentOffline)
		require.Positive(t, c.Dead)
		require.Greater(t, c.WentOnline, 20)
		f.Quiet()
		f.Quiet()
		pass(time.Hour)
		require.Zero(t, f.Counts().Dead)
		require.Equal(t, 20, f.Counts().Online)
		require.Empty(t, f.differences(p.sides()))
	})
}

func TestRequestsGoToAReplicaThatAnswers(t *testing.T) {
	inBubble(t, func(_ *Config, p *program) {
		p.fault = func(r *http.Request) string {
			switch r.URL.Host {
			case "one":
				return "down"
			case "two":
				return "503"
			}
			return ""
		}
	}, func(t *testing.T, f *Force, p *program) {
		pass(30 * time.Second)
		require.Zero(t, f.Counts().Online)
		require.Positive(t, f.Counts().Failed)
		require.ErrorContains(t, f.Counts().LastFailure, "")
		require.Equal(t, 20, f.Unsure())
		f.SetTargets("http://one", "http://three")
		pass(30 * time.Second)
		require.Equal(t, 20, f.Counts().Online)
		require.Empty(t, f.differences(p.sides()))
	})
}

func TestSessionsAreGivenMovedAndEnded(t *testing.T) {
	inBubble(t, func(c *Config, _ *program) { c.Sessions, c.Polls = 2, 5 }, func(t *testing.T, f *Force, p *program) {
		pass(5 * time.Minute)
		c := f.Counts()
		require.Greater(t, c.Accepted, 150)
		require.Positive(t, c.Rerouted)
		require.Greater(t, c.Ended, 100)
		require.InDelta(t, 1500, c.Polls, 25)
		require.Equal(t, c.Polls, c.Answers["valkey"])
		require.GreaterOrEqual(t, c.Answers["postgres"], c.Accepted)
		f.Quiet()
		pass(time.Minute)
		require.Equal(t, f.Counts().Accepted-f.Counts().Ended, f.Counts().Running)
		require.Positive(t, f.Counts().Running)
		require.Empty(t, f.differences(p.sides()))
	})
}

func TestASessionWhoseAnswersAreLostIsKnownInTheEnd(t *testing.T) {
	inBubble(t, func(c *Config, p *program) {
		c.Sessions, c.Mitras = 2, 5
		n := 0
		p.fault = func(r *http.Request) string {
			if n++; strings.Contains(r.URL.Path, "/sessions/") && n%3 != 0 {
				return []string{"lost", "503", "down"}[n/3%3]
			}
			return ""
		}
	}, func(t *testing.T, f *Force, p *program) {
		pass(5 * time.Minute)
		f.Quiet()
		pass(time.Minute)
		require.Positive(t, f.Counts().Failed)
		require.Greater(t, f.Counts().Accepted, 25)
		require.Empty(t, f.differences(p.sides()))
	})
}

func TestWhatTheEndInterruptsHasNotFailed(t *testing.T) {
	var force *Force
	inBubble(t, func(c *Config, p *program) { c.Sessions, p.hangs = 2, true }, func(t *testing.T, f *Force, _ *program) {
		pass(time.Minute)
		force = f
	})
	require.Zero(t, force.Counts().Failed)
}

func TestTheViewShowsWhatHappensAndASummary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram()
		f, err := New(Config{
			Mitras: 20, Targets: []string{"http://one"}, Secret: secret, Backend: p, Transport: p,
			Interval: 10 * time.Second, Polls: 1,
		})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 35*time.Second)
		defer cancel()
		var out bytes.Buffer
		require.NoError(t, (&View{Force: f, Out: &out}).Run(ctx))
		// A poll that falls on the moment of a line counts in either.
		require.Regexp(t, `(?m)^   30s  online: apps 20  dead 0  sessions 0  heartbeats/s 2  answers: valkey (9|10|11)$`, out.String())
		require.Contains(t, out.String(), "after 35.0 s:")
		require.Contains(t, out.String(), "20 times, offline 0 times")
	})
}

func TestTheViewFailsIfNobodyCouldGoOnline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram()
		f, err := New(Config{
			Mitras: 1, Targets: []string{"http://one"}, Secret: []byte("another"), Backend: p, Transport: p,
		})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var out bytes.Buffer
		require.ErrorContains(t, (&View{Force: f, Out: &out, Terminal: true}).Run(ctx), "nobody could go online: workforce: HTTP 401")
		require.Contains(t, out.String(), over+"    1s  online: apps 0")
	})
}

func TestEverythingThatIsWrongWithAConfigIsNamed(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Mitras: MostMitras + 1, Targets: []string{"localhost:80"}})
	for _, text := range []string{"100000 mitras", `"localhost:80"`, "a secret", "a backend"} {
		require.ErrorContains(t, err, text)
	}
	_, err = New(Config{Mitras: 1, Secret: secret, Backend: newProgram()})
	require.ErrorContains(t, err, "expected a target")
}

func TestIdsAreUUIDsThatDependOnTheSeedAlone(t *testing.T) {
	t.Parallel()
	ids := func(seed uint64) []string {
		f, err := New(Config{Mitras: 50, Targets: []string{"http://one"}, Secret: secret, Backend: newProgram(), Seed: seed})
		require.NoError(t, err)
		return f.IDs()
	}
	require.Equal(t, ids(1), ids(1))
	require.NotEqual(t, ids(1), ids(2))
	for _, id := range ids(1) {
		require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, id)
	}
}
