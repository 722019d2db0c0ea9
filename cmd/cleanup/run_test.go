package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
)

// on are the arguments for a server, with the rules of the tests.
func on(t testing.TB, server *redistest.Server, more ...string) []string {
	t.Helper()
	return append([]string{"--redis-url=redis://" + server.Addr(), "--rules=" + rulesFile(t, ofTests)}, more...)
}

func TestAnOrphanGoesAfterItsGraceAndTheLivingStay(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	leaks(t, server)
	p := serving(t, append(on(t, server, "--instance-id=one"), quick...)...)
	exists := func(key string) bool { return rdb.Exists(t.Context(), key).Val() == 1 }
	p.Await(func() bool { return !exists("queue:reservation:bob") && !exists("bots:state:b2") })
	var stats struct {
		IsRunning        bool
		LastCleanup      *string
		TotalCleanupsRun int
		CumulativeStats  map[string]any
	}
	p.Await(func() bool {
		_, body := p.Get("/api/v1/stats")
		require.NoError(t, json.Unmarshal([]byte(body), &stats))
		// A key is deleted a moment before the reply that counts it.
		return stats.TotalCleanupsRun >= 2 && stats.CumulativeStats["totalKeysRemoved"] == 2.0
	})
	for _, key := range []string{"queue:reservation:ann", "queue:reservation:eve", "bots:state:b1", "cart:ann"} {
		require.True(t, exists(key), key)
	}
	require.True(t, stats.IsRunning)
	require.NotNil(t, stats.LastCleanup)
	require.Equal(t, map[string]any{
		"expiredReservations": 1.0, "orphanedBotStates": 1.0, "carts": 0.0, "totalKeysRemoved": 2.0,
		"byRule": map[string]any{"reservations": 1.0, "bots": 1.0, "carts": 0.0},
	}, stats.CumulativeStats)

	st := p.state()
	require.True(t, st.Ready, st.NotReady)
	require.True(t, st.Janitor.Leading)
	require.False(t, st.MongoDB.Asked)
	require.Len(t, st.Rules, 3)
	require.Equal(t, janitor.Done, st.Rules[0].Outcome)
	require.Equal(t, 1, st.Rules[0].Kept["unreadable"])
	require.Equal(t, janitor.Held, st.Rules[2].Outcome)
	require.Equal(t, "reference_lost", st.Rules[2].Reason)
	_, page := p.Get("/")
	for _, want := range []string{
		"Rollcall cleanup ", "this replica leads", "reservations", "held: reference_lost", "carts (only reports)",
		"no rule asks it", "1 of 1", "2 keys by this process",
	} {
		require.Contains(t, page, want)
	}
	_, metrics := p.Get("/metrics")
	for _, want := range []string{
		`cleanup_keys_removed_total{category="expiredReservations"} 1`, "cleanup_cycles_total ", "cleanup_last_cycle_timestamp_seconds ",
		`cleanup_cycle_duration_seconds_bucket{le="10"}`, `orphan_removed_total{rule="bots"} 1`, "go_goroutines", "janitor_leader 1\n",
	} {
		require.Contains(t, metrics, want)
	}
	require.NotContains(t, metrics, "registry_held", "there are no devices")

	other := serving(t, append(on(t, server, "--instance-id=two"), quick...)...)
	for _, shows := range []*running{p, other} {
		var fleet inspect.Status
		shows.Await(func() bool {
			code, body := shows.Get("/api/v1/fleet")
			require.Equal(t, http.StatusOK, code, body)
			fleet = inspect.Status{}
			require.NoError(t, json.Unmarshal([]byte(body), &fleet))
			return len(fleet.Instances) == 2 && fleet.Instances[0].Version != "" && fleet.Instances[1].Version != "" &&
				strings.Contains(body, `"kind": "eviction"`) && strings.Contains(body, "orphans taken by")
		})
		for i, of := range []*running{p, other} {
			require.Equal(t, "cleanup", fleet.Instances[i].Program)
			require.Equal(t, of.HTTP, fleet.Instances[i].Address)
		}
		_, body := shows.Get("/api/v1/why?key=queue:reservation:bob")
		require.Contains(t, body, `"verdict": "evicted"`)
	}
	other.Stop()
	require.Equal(t, cli.ExitOK, other.Ends())

	p.Stop()
	require.Equal(t, cli.ExitOK, p.Ends())
	require.Contains(t, p.Log.String(), "cleanup cycle over")
	require.Contains(t, p.Log.String(), `"carts":"reference_lost: sessions does not exist"`)
	for _, key := range []string{"{cleanup}:janitor:leader", "{cleanup}:instance:heartbeat:" + st.Instance} {
		require.False(t, exists(key), key)
	}
}

func TestASweepOnDemandSaysWhatWentByCategory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	leaks(t, server)
	p := serving(t, append(append(on(t, server), quick...), "--cleanup-interval=10m")...)
	p.Await(func() bool { return p.state().Janitor.Leading })
	total, waited := 0.0, false
	p.Await(func() bool { // held until Redis was observed, then marked, then deleted
		code, body := p.Post("/api/v1/sweep?sweep=reservations", adminToken)
		if code == http.StatusConflict { // between two terms
			return false
		}
		require.Equal(t, http.StatusOK, code, body)
		var answer struct {
			Removed                         map[string]float64
			KeysRemoved, TotalKeysRemoved   float64
			Condemned, Waiting, LeftOverCap int
			WaitingUntil                    *time.Time
			Rules                           []struct{ Rule string }
			Reports                         []janitor.Report
		}
		require.NoError(t, json.Unmarshal([]byte(body), &answer))
		require.Len(t, answer.Reports, 1)
		require.Equal(t, "reservations", answer.Reports[0].Sweep)
		require.Contains(t, answer.Removed, "orphanedBotStates", "every category is there")
		require.Len(t, answer.Rules, 1)
		require.Equal(t, "reservations", answer.Rules[0].Rule)
		require.Equal(t, answer.KeysRemoved, answer.TotalKeysRemoved)
		require.Equal(t, answer.Waiting > 0, answer.WaitingUntil != nil)
		waited = waited || answer.Condemned == 1 && answer.Waiting == 1 && answer.TotalKeysRemoved == 0
		total += answer.Removed["expiredReservations"]
		return server.Client().Exists(t.Context(), "queue:reservation:bob").Val() == 0
	})
	require.LessOrEqual(t, total, 1.0)
	require.True(t, waited, "the first sweep that finds it answers that it waits")
	code, body := p.Post("/api/v1/sweep?sweep=reservation", adminToken)
	require.Equal(t, http.StatusBadRequest, code)
	require.Contains(t, body, "there are owners, registry, reservations, bots, carts")
}

func TestADryRunDeletesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	leaks(t, server)
	p := serving(t, append(on(t, server, "--cleanup-dry-run"), quick...)...)
	p.Await(func() bool {
		st := p.state()
		return st.Rules[0].Outcome == janitor.Done && st.Rules[0].Condemned == 1
	})
	require.True(t, p.state().Rules[0].DryRun)
	require.EqualValues(t, 1, server.Client().Exists(t.Context(), "queue:reservation:bob").Val())
	_, page := p.Get("/")
	require.Contains(t, page, "reservations (dry run)")
}

func TestItIsReadyWhileRedisAnswers(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := serving(t, append(on(t, server), quick...)...)
	p.Await(func() bool { code, _ := p.Get("/readyz"); return code == http.StatusOK })
	server.Kill()
	p.Await(func() bool { code, _ := p.Get("/readyz"); return code == http.StatusServiceUnavailable })
	_, body := p.Get("/readyz")
	require.Contains(t, body, "Redis does not answer")
	code, _ := p.Get("/healthz")
	require.Equal(t, http.StatusOK, code)
	server.Restart()
	p.Await(func() bool { code, _ := p.Get("/readyz"); return code == http.StatusOK })
}

func TestWhatIsRefusedAtTheStartFails(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := serving(t, on(t, server)...)
	tells(t, "1 $ON --http-addr="+p.HTTP+" ~ address already in use", server)
	code, _, said := says(t, "--redis-url=embedded", "--mongodb-uri=mongodb://user:geheim@127.0.0.1:1/", "--http-addr=127.0.0.1:0")
	require.Equal(t, cli.ExitFailed, code)
	require.Contains(t, said, "names no database")
	require.NotContains(t, said, "geheim")
}
