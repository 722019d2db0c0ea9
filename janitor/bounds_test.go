package janitor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/timeline"
)

func TestAReportNamesSomeDeadOwnersAndCountsAll(t *testing.T) {
	t.Parallel()
	p := &Pass{}
	for range 2 {
		for i := range 1000 {
			p.evictedFrom(fmt.Sprint(i), 3)
		}
	}
	require.Len(t, p.from, fromMost+1)
	require.Equal(t, 6, p.from["0"])
	require.Equal(t, 6*(1000-fromMost), p.from[fromOthers])
}

// Copying all 20,000 times took minutes. Not parallel, because AllocsPerRun must not be.
func TestSinceWhenOneOwnerIsSilentCostsNoCopyOfAll(t *testing.T) {
	o := &owners{last: &reading{owners: map[string]*owner{"lives": {liveness: Alive}}}}
	for i := range 10_000 {
		o.last.owners[fmt.Sprint(i)] = &owner{Record: doubt.Record{Last: int64(i)}, listed: true, liveness: Dead}
	}
	p := &Pass{t: &termState{owners: o}}
	for id, since := range p.silent() {
		require.Equal(t, since, p.silentSince(id))
	}
	require.Zero(t, p.silentSince("lives"))
	require.Zero(t, testing.AllocsPerRun(100, func() { p.silentSince("7") }))
}

func TestAPauseOfAnyLengthIsKeptShort(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("\u00e9", 1<<19)
	for _, text := range []string{long, `{"who":"` + long + `","why":"` + long + `"}`} {
		p, err := asPause(redis.NewIntResult(1, nil), redis.NewStringResult(text, nil))
		require.NoError(t, err)
		require.LessOrEqual(t, len(p.Who)+len(p.Why), 2*longestText)
		require.NotEmpty(t, p.Why)
	}
}

func TestAnEventThatCouldNotBeWrittenIsTriedAgainThoughNothingElseHappens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		var sent [][]redis.Cmder
		client.AddHook(redistest.Intercept(func(_ context.Context, cmds []redis.Cmder, _ func() error) error {
			if sent = append(sent, cmds); len(sent) == 1 {
				return errors.New("away")
			}
			return nil
		}))
		n := newNotes(client, "timeline", "r1", slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { n.Run(ctx, notesLast); close(ended) }()
		n.add(timeline.Event{Kind: timeline.Death, Instance: "a"})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Len(t, sent, 2, "it is not kept until the next event, nor written twice")
		require.Contains(t, sent[1][0].Args(), "a")
		cancel()
		<-ended
		require.NoError(t, client.Close())
	})
}
