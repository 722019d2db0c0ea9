package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/orphan"
)

// watched is for make cleanup-demo.
var watched = flag.Bool("watched", false, "print TestShow as it happens")

// TestShow is the demonstration of what the worker does beside a shop that leaks carts. Redis is
// inside it.
func TestShow(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	to := io.Writer(&out)
	if *watched {
		to = os.Stdout
	}
	require.NoError(t, playDemo(t.Context(), to), &out)
	if !*watched {
		require.Contains(t, out.String(), "the rule is held (mass_failure)")
		require.Contains(t, out.String(), "Exactly the orphans went")
	}
}

const demoRules = `rules:
- name: carts
  delete: true
  keys: "cart:{user}"
  keep_if: [{exists: "session:{user}"}]
  grace: 2s
  bin: 1h
`

// demoUsers are customers whose session lives, demoGone those who left a cart behind.
const demoUsers, demoGone = 30, 7

type shop struct {
	redis.UniversalClient
	began time.Time
	out   io.Writer
}

// playDemo returns an error unless exactly the orphans went.
func playDemo(ctx context.Context, out io.Writer) error {
	target, dir := connect.Redis{}, ""
	err := target.Parse(connect.EmbeddedRedis)
	if err == nil {
		dir, err = os.MkdirTemp("", "rollcall-cleanup-demo-")
	}
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "rules.yaml")
	clients, err := connect.Open(ctx, &target, time.Second)
	if err != nil {
		return err
	}
	defer clients.Close()
	s := shop{clients.Data, time.Now(), out}
	if err := errors.Join(os.WriteFile(file, []byte(demoRules), 0o600), s.fill(ctx, "cart", demoUsers+demoGone),
		s.fill(ctx, "session", demoUsers)); err != nil {
		return err
	}
	flags := strings.Fields("--redis-url=redis://" + clients.Embedded + " --http-addr=127.0.0.1:0 --cleanup-interval=1s " +
		"--cleanup-lease-ttl=2s --heartbeat-interval=500ms --heartbeat-ttl=2s --rules=" + file)
	s.say("a shop has %d carts; %d customers are gone. cleanup plan shows what would go:", demoUsers+demoGone, demoGone)
	if code := cleanup().Execute(ctx, append([]string{"plan"}, flags...), nil, out, out); code != cli.ExitOK {
		return fmt.Errorf("cleanup plan ended with status %d", code)
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan int, 1)
	go func() { ended <- cleanup().Execute(running, flags, nil, io.Discard, io.Discard) }()
	s.say("a worker starts. It listens to Redis for 4 s before anything goes")
	if err := s.play(ctx); err != nil {
		return err
	}
	stop()
	if code := <-ended; code != cli.ExitOK {
		return fmt.Errorf("the worker ended with status %d", code)
	}
	s.say("the worker has stopped. Exactly the orphans went")
	return nil
}

func (s shop) play(ctx context.Context) error {
	bins := orphan.Bins{Client: s, Layout: guard.Layout{Prefix: "{cleanup}:"}}
	if err := s.until(ctx, demoUsers, func() bool { return s.carts(ctx) == demoUsers }); err != nil {
		return err
	}
	s.say("%d carts are in the bin, %d of customers are left", demoGone, demoUsers)
	for user := range demoUsers {
		s.Del(ctx, fmt.Sprint("session:", user))
	}
	s.say("all sessions vanish: every cart looks orphaned, which the worker does not believe at once")
	if err := s.until(ctx, demoUsers, func() bool {
		passes, err := orphan.ReadPasses(ctx, s, bins.Layout)
		return err == nil && passes["carts"].Reason == "mass_failure"
	}); err != nil {
		return err
	}
	s.say("the rule is held (mass_failure), and the shop puts the sessions back")
	if err := s.fill(ctx, "session", demoUsers); err != nil {
		return err
	}
	binned, err := bins.List(ctx, "")
	if err != nil || len(binned) != demoGone {
		return fmt.Errorf("expected %d in the bin, got %d: %w", demoGone, len(binned), err)
	}
	if _, err := bins.Restore(ctx, binned[0].ID); err != nil {
		return err
	}
	s.say("%s is put back from the bin, and will go again unless its session comes back", binned[0].Key)
	if n := s.carts(ctx); n != demoUsers+1 {
		return fmt.Errorf("%d carts are there, %d are expected", n, demoUsers+1)
	}
	return nil
}

func (s shop) say(format string, args ...any) {
	fmt.Fprintf(s.out, "%5.1fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

func (s shop) fill(ctx context.Context, what string, n int) error {
	for user := range n {
		if err := s.Set(ctx, fmt.Sprintf("%s:%d", what, user), user, 0).Err(); err != nil {
			return err
		}
	}
	return nil
}

func (s shop) carts(ctx context.Context) (n int) {
	for user := range demoUsers + demoGone {
		n += int(s.Exists(ctx, fmt.Sprint("cart:", user)).Val())
	}
	return n
}

// until fails if a cart of the first users, who all live, is gone.
func (s shop) until(ctx context.Context, users int, happened func() bool) error {
	for end := time.Now().Add(time.Minute); !happened(); {
		for user := range users {
			if s.Exists(ctx, fmt.Sprint("cart:", user)).Val() == 0 {
				return fmt.Errorf("the cart of %d, who lives, is gone: %w", user, context.Cause(ctx))
			}
		}
		if time.Now().After(end) {
			return errors.New("waited in vain")
		}
		if !wait.For(ctx, 20*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	return nil
}
