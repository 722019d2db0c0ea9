package workforce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rollcall-redis/rollcall/internal/teltonika/sim"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// Counts is what a workforce has done so far, and its present state.
type Counts struct {
	Online, Dead int // now, as the apps know

	Heartbeats  int
	InPostgres  int // heartbeats for which Redis alone could not answer
	NotOnline   int // refused as not online, or deactivated
	WentOnline  int
	WentOffline int

	Accepted, Rerouted, Ended int // sessions

	Polls   int
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

// Show runs a workforce, and shows its progress until ctx ends: each second in one line of a
// terminal, else in a line every ten. A summary follows. It fails if nobody could go online.
func Show(ctx context.Context, f *Force, t *Truth, out io.Writer, terminal bool) error {
	every, line := 10*time.Second, "%5.0fs  %s\n"
	if terminal { // in the line's place, cut at the right edge
		every, line = time.Second, "\r\x1b[K\x1b[?7l%5.0fs  %s\x1b[?7h"
	}
	began := time.Now()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.Run(ctx)
	}()
	f.Watch(ctx, t, every, func(text string) { fmt.Fprintf(out, line, time.Since(began).Seconds(), text) })
	<-ended
	c := f.Counts()
	if err := summary(out, &c, time.Since(began)); err != nil {
		return err
	}
	if c.WentOnline == 0 {
		return fmt.Errorf("nobody could go online: %w", cmp.Or(c.LastFailure, errors.New("there was no time to")))
	}
	return nil
}

// Watch describes until ctx ends what happened since the last time.
func (f *Force) Watch(ctx context.Context, t *Truth, every time.Duration, say func(string)) {
	before := f.Counts()
	for at := time.Now(); wait.For(ctx, every); {
		stores := t.Stores(ctx)
		now, c := time.Now(), f.Counts()
		if ctx.Err() == nil {
			say(describe(&c, &before, now.Sub(at), stores))
		}
		at, before = now, c
	}
}

func describe(c, before *Counts, since time.Duration, stores string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "online: apps %d%s  dead %d  sessions %d  heartbeats/s %.0f", c.Online, stores, c.Dead,
		c.Accepted-c.Ended, float64(c.Heartbeats-before.Heartbeats)/max(since.Seconds(), 1e-9))
	for _, more := range []struct {
		format string
		n      int
	}{
		{" (asked Postgres %d)", c.InPostgres - before.InPostgres},
		{" (not online %d)", c.NotOnline - before.NotOnline},
		{"  failed %d", c.Failed - before.Failed},
	} {
		if more.n > 0 {
			fmt.Fprintf(&b, more.format, more.n)
		}
	}
	if text := answers(c.Answers, before.Answers); text != "" {
		fmt.Fprintf(&b, "  answers: %s", text)
	}
	return b.String()
}

func answers(now, before map[string]int) string {
	var parts []string
	for _, source := range slices.Sorted(maps.Keys(now)) {
		if n := now[source] - before[source]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", source, n))
		}
	}
	return strings.Join(parts, ", ")
}

func summary(w io.Writer, c *Counts, took time.Duration) error {
	const exact = 10 * time.Microsecond
	_, err := fmt.Fprintf(w, `
after %.1f s:
  went online              %d times, offline %d times
  heartbeats               %d, %.1f a second
  acknowledged within      p50 %v, p99 %v
  answered "not online"    %d
  sessions                 accepted %d, moved %d, ended %d
  polls                    %d
  answers by source        %s
  requests that failed     %d
`, took.Seconds(), c.WentOnline, c.WentOffline, c.Heartbeats, float64(c.Heartbeats)/max(took.Seconds(), 1e-9),
		c.Beat.Quantile(0.5).Round(exact), c.Beat.Quantile(0.99).Round(exact), c.NotOnline,
		c.Accepted, c.Rerouted, c.Ended, c.Polls, answers(c.Answers, nil), c.Failed)
	if c.LastFailure != nil {
		fmt.Fprintf(w, "  last failure             %v\n", c.LastFailure)
	}
	return err
}
