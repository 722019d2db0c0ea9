package workforce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/teltonika/sim"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// Counts is what a workforce has done so far, and its present state.
type Counts struct {
	Online, Dead int // now, as the apps know

	Heartbeats int
	InPostgres int // heartbeats for which Redis alone could not answer
	NotOnline  int // refused as not online, or deactivated
	WentOnline int

	Accepted, Rerouted, Ended int // sessions

	Answers map[string]int // to customers and the dispatcher, by Availability-Source

	Failed      int // requests without an answer, or with a failure
	LastFailure error
	Beat        sim.Latency // of heartbeats
}

type counter struct {
	mu  sync.Mutex
	now Counts
}

func (c *counter) count(add func(*Counts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add(&c.now)
}

func (c *counter) failed(err error) {
	c.count(func(c *Counts) { c.Failed++; c.LastFailure = err })
}

// Counts are as of now.
func (f *Force) Counts() Counts {
	f.mu.Lock()
	c := f.now
	c.Answers = maps.Clone(c.Answers)
	f.mu.Unlock()
	for _, a := range f.apps {
		a.mu.Lock()
		if a.state == Dead {
			c.Dead++
		} else if a.online {
			c.Online++
		}
		a.mu.Unlock()
	}
	return c
}

// Stores describes how many are online in the stores; "?": no answer.
type Stores struct {
	DB     *pgxpool.Pool
	Redis  redis.UniversalClient // nil: nothing is described
	Prefix string                // of Redis' keys
}

func (t *Stores) describe(ctx context.Context) string {
	if t.Redis == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	redis, postgres := "?", "?"
	if n, err := t.Redis.SCard(ctx, t.Prefix+"mitras:online").Result(); err == nil {
		redis = strconv.FormatInt(n, 10)
	}
	_ = t.DB.QueryRow(ctx, `SELECT count(*)::text FROM mitra_online_status WHERE is_online`).Scan(&postgres)
	return ", mirror " + redis + ", Postgres " + postgres
}

// Show runs a workforce until ctx ends, and describes each stretch of time, and then all of it. It
// fails if nobody could go online.
func Show(ctx context.Context, f *Force, t *Stores, out io.Writer, every time.Duration) error {
	began := time.Now()
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	f.Watch(ctx, t, every, func(text string) {
		fmt.Fprintf(out, "%5.0fs  %s\n", time.Since(began).Seconds(), text)
	})
	running.Wait()
	c := f.Counts()
	_, err := fmt.Fprintf(out, "in all: %s\n", describe(&c, &Counts{}, time.Since(began), ""))
	if err == nil && c.WentOnline == 0 {
		err = fmt.Errorf("nobody could go online: %w", cmp.Or(c.LastFailure, errors.New("there was no time to")))
	}
	return err
}

// Watch describes until ctx ends what happened since the last time.
func (f *Force) Watch(ctx context.Context, t *Stores, every time.Duration, say func(string)) {
	before := f.Counts()
	for at := time.Now(); wait.For(ctx, every); {
		stores := t.describe(ctx)
		now, c := time.Now(), f.Counts()
		if ctx.Err() == nil {
			say(describe(&c, &before, now.Sub(at), stores))
		}
		at, before = now, c
	}
}

func describe(c, before *Counts, since time.Duration, stores string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "online: apps %d%s  dead %d  heartbeats/s %.0f (p99 %v)", c.Online, stores, c.Dead,
		float64(c.Heartbeats-before.Heartbeats)/max(since.Seconds(), 1e-9), c.Beat.Quantile(0.99).Round(time.Millisecond))
	for _, more := range []struct {
		format string
		n      int
	}{
		{"  in Postgres %d", c.InPostgres - before.InPostgres},
		{"  not online %d", c.NotOnline - before.NotOnline},
		{"  sessions accepted %d", c.Accepted - before.Accepted},
		{", moved %d", c.Rerouted - before.Rerouted},
		{", ended %d", c.Ended - before.Ended},
		{"  failed %d", c.Failed - before.Failed},
	} {
		if more.n > 0 {
			fmt.Fprintf(&b, more.format, more.n)
		}
	}
	for _, source := range slices.Sorted(maps.Keys(c.Answers)) {
		if n := c.Answers[source] - before.Answers[source]; n > 0 {
			fmt.Fprintf(&b, "  %s %d", source, n)
		}
	}
	return b.String()
}
