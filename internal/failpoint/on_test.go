//go:build failpoints && unix

package failpoint

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type orders struct {
	t   *testing.T
	dir string
}

func newOrders(t *testing.T) orders { return orders{t, t.TempDir()} }

func (o orders) give(name, text string) {
	o.t.Helper()
	path := filepath.Join(o.dir, name)
	require.NoError(o.t, os.WriteFile(path+".tmp", []byte(text), 0o600))
	require.NoError(o.t, os.Rename(path+".tmp", path))
}

func (o orders) there(name string) bool {
	_, err := os.Stat(filepath.Join(o.dir, name))
	return err == nil
}

func (o orders) hits(name string) string {
	text, err := os.ReadFile(filepath.Join(o.dir, name+".hits"))
	if os.IsNotExist(err) {
		return ""
	}
	require.NoError(o.t, err)
	return string(text)
}

func eventually(t *testing.T, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, time.Minute, 2*time.Millisecond)
}

// stopped reports whether the child is stopped.
func (c *child) stopped() bool {
	require.True(c.t, c.Runs(), "it ended")
	return c.Stopped()
}

func (c *child) cont() { require.NoError(c.t, c.Cont()) }

func TestAProcessStopsItselfAndGoesOn(t *testing.T) {
	t.Parallel()
	o := newOrders(t)
	c := start(t, o.dir)
	c.hit("p") // without an order
	c.back()
	for _, hits := range []string{"1", "2"} {
		o.give("p", "stop\n")
		c.hit("other", "p", "other")
		eventually(t, c.stopped)
		require.True(t, o.there("p.taken"))
		require.False(t, o.there("p"))
		require.False(t, o.there("p.woken"))
		require.Equal(t, hits, o.hits("p"))
		c.cont()
		c.back()
		require.True(t, o.there("p.woken"))
		require.NoError(t, os.Remove(filepath.Join(o.dir, "p.woken")))
	}
	c.hit("p") // the order was taken
	c.back()
	require.Equal(t, "2", o.hits("p"))
}

func TestAProcessKillsItself(t *testing.T) {
	t.Parallel()
	o := newOrders(t)
	for _, hits := range []string{"1", "2"} { // the second is another process
		c := start(t, o.dir)
		o.give("p", "kill")
		c.hit("p")
		require.Equal(t, -1, c.ExitCode(), "it ended by no signal")
		require.True(t, o.there("p.taken"))
		require.False(t, o.there("p.woken"))
		require.Equal(t, hits, o.hits("p"))
	}
}

func TestAGoroutineWaitsWhileOthersGoOn(t *testing.T) {
	t.Parallel()
	o := newOrders(t)
	c := start(t, o.dir)
	o.give("p", "wait 10ms")
	begun := time.Now()
	c.hit("p")
	c.back()
	require.GreaterOrEqual(t, time.Since(begun), 10*time.Millisecond)
	require.True(t, o.there("p.woken"))

	o.give("p", "wait 1h")
	o.give("q", "stop") // shows that q is passed
	c.hit("p", "q")
	eventually(t, c.stopped)
	c.cont()
	eventually(t, func() bool { return o.there("p.taken") && o.there("q.woken") })
}

func TestAnOrderIsForALaterHit(t *testing.T) {
	t.Parallel()
	o := newOrders(t)
	c := start(t, o.dir)
	for _, hits := range []string{"1", "2"} { // counted afresh
		o.give("p", "wait 0s 3")
		for range 2 {
			c.hit("p", "other")
			c.back()
			require.True(t, o.there("p"))
		}
		c.hit("p")
		c.back()
		require.False(t, o.there("p"))
		require.Equal(t, hits, o.hits("p"))
	}
}

func TestOneHitTakesAnOrder(t *testing.T) {
	t.Parallel()
	o := newOrders(t)
	a, b := start(t, o.dir), start(t, o.dir) // not how it is used, but it would show a second taker
	many := slices.Repeat([]string{"p"}, 50)
	for range 20 {
		require.NoError(t, os.RemoveAll(filepath.Join(o.dir, "p.hits")))
		o.give("p", "wait 0s")
		a.hit(many...)
		b.hit(many...)
		a.back()
		b.back()
		require.Equal(t, "1", o.hits("p"))
	}
}

func TestWhatIsNoOrderEndsTheProcess(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "halt", "wait", "wait soon", "wait -1s", "stop 0", "stop x", "stop 1 2"} {
		o := newOrders(t)
		c := start(t, o.dir)
		o.give("p", text)
		c.hit("p")
		require.Positive(t, c.ExitCode(), "%q", text)
		require.Contains(t, c.err.String(), "failpoint p: order", "%q", text)
	}
}

func TestWithoutAFolderNothingActs(t *testing.T) {
	t.Parallel()
	c := start(t, "")
	c.hit("p")
	c.back()
}

func TestAContextThatWasHitHasNoEnd(t *testing.T) {
	o := newOrders(t)
	before := folder
	t.Cleanup(func() { folder = before })
	folder = o.dir
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, HitPast(ctx, "p").Err())
	o.give("p", "wait 0s")
	require.NoError(t, HitPast(ctx, "p").Err())
}
