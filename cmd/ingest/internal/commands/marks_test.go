package commands

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// claimer is an instance that holds the device and has read the queue.
func (b *bench) claimer(instance string) *Reader {
	b.t.Helper()
	r := lone(instance, b.layout, b.rdb)
	r.cfg.Lookup = b.sender().Lookup
	require.NoError(b.t, b.rdb.HSet(b.t.Context(), b.layout.Registry(), imei, instance).Err())
	require.NoError(b.t, r.readQueue(b.t.Context()))
	return r
}

// claimsAndDies marks a command as an instance does that is killed before the outcome.
func (b *bench) claimsAndDies(instance, at string) *Reader {
	b.t.Helper()
	r := b.claimer(instance)
	for _, e := range r.waiting.devices[imei] {
		if e.at == at {
			for range 2 { // a lost reply
				verdict, _, _, err := r.take(b.t.Context(), e)
				require.NoError(b.t, err)
				require.Equal(b.t, verdictSend, verdict)
			}
		}
	}
	return r
}

// Each of the two marks is enough.
func TestAQueuedCommandThatAKilledInstanceSentIsNotSentAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		by   string
		lose func(b *bench)
	}{
		"another":                     {by: "x"},
		"an earlier life of the same": {by: "a"},
		"another, whose state was evicted": {"x", func(b *bench) {
			b.rdb.Del(b.t.Context(), state(b.layout, "sent"))
		}},
		"another, and somebody destroyed the group": {"x", func(b *bench) {
			b.rdb.XGroupDestroy(b.t.Context(), Queue(b.layout), group)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, redistest.Shared(t))
			at := b.queues("sent", imei, "sent", "expires", in(2*time.Second))
			killed := b.claimsAndDies(c.by, at)
			text := "sent by " + c.by + ", which reported no outcome; the device may have executed it"
			if c.lose != nil {
				c.lose(b)
				text = "which reported no outcome"
			}
			b.queues("unsent", imei, "unsent")
			a := b.gate("a")
			d := a.connects(imei)
			d.obeys()
			answer := 300 * time.Millisecond
			if c.by == "a" {
				answer = time.Hour // it need not wait
			}
			a.reads(func(c *Config) { c.Answer = answer })
			b.gate("b").reads(func(c *Config) { c.Answer = answer })
			got := b.settled(2)
			require.Equal(t, InstanceLost, got["sent"].Status)
			require.Contains(t, got["sent"].Text, text)
			require.Equal(t, Outcome{"unsent", imei, "a", Answered, "did unsent"}, got["unsent"])
			require.Equal(t, []string{"unsent"}, d.heard())

			// If it is not dead after all, its outcome is ignored.
			added, err := killed.add(t.Context(), entry{stream: Queue(b.layout), at: at, Command: Command{ID: "sent", IMEI: imei}}, Answered, "late")
			require.NoError(t, err)
			require.Equal(t, verdictGone, added)
			b.settled(2)
		})
	}
}

// If Redis' clock is behind, or a reply was lost: the sender knows that nothing was written.
func TestACommandThatWasMarkedAndNotWrittenWaitsOn(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t))
	at := b.queues("c1", imei, "getver", "expires", in(time.Hour))
	x := b.claimsAndDies("x", at)
	e := x.waiting.devices[imei][0]
	for _, status := range []Status{Expired, verdictWaits} {
		added, err := x.add(t.Context(), e, status, "")
		require.NoError(t, err)
		require.Equal(t, verdictWaits, added)
		verdict, _, _, err := x.take(t.Context(), e)
		require.NoError(t, err)
		require.Equal(t, verdictSend, verdict)
	}
	cfg := x.cfg
	cfg.Instance = "z"
	z := New(cfg)
	added, err := z.add(t.Context(), e, Expired, "")
	require.NoError(t, err)
	require.Equal(t, verdictTaken, added, "x may report yet")
	y := New(x.cfg) // its next life
	verdict, _, _, err := y.take(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, verdictTaken, verdict)
	added, err = y.add(t.Context(), e, verdictWaits, "")
	require.NoError(t, err)
	require.Equal(t, "instance_lost", added)
	b.settled(1)
}
