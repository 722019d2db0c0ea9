package registry_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// oddIDs could break a message of words, or a key.
var oddIDs = []string{
	"a b", " a", "a ", "a  b", "/a", "/", "a/b", "//r1 5 imei", "tab\there", "line\nfeed\r", "nul\x00byte", "del\x7f",
	"", "%", "%41", "50%", "%2", "%zz", "{a}", "}{", "alice|phone", "no\u00a0break", "next\u0085line", "имя",
	"not UTF-8 \xff\xfe", strings.Repeat("long ", 200), "imei",
}

func TestAnyIDIsRegisteredAndItsFormerOwnerIsToldOfAMove(t *testing.T) {
	t.Parallel()
	for _, id := range oddIDs {
		t.Run(strings.ToValidUTF8(id, "?"), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, w *bubble) {
				var told moves
				r1, r2 := w.start("r1", told.tell), w.start("r2", told.tell)
				r1.register(t, "before")
				r1.register(t, id)
				r1.register(t, "zebra")
				for _, id := range []string{"before", id, "zebra"} { // in one message
					r2.Register(id)
				}
				synctest.Wait()
				want := []string{"before is at r2", id + " is at r2", "zebra is at r2"}
				require.ElementsMatch(t, want, told.since())
				require.Equal(t, "r2", w.owner(id))
				w.end(r1)
				w.end(r2)
			})
		})
	}
}

func TestAnOwnerThatIsAskedAboutAnyIDAnswers(t *testing.T) {
	t.Parallel()
	for _, id := range oddIDs {
		t.Run(strings.ToValidUTF8(id, "?"), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, w *bubble) {
				var told moves
				r1, r2 := w.start("r1", told.tell), w.start("r2", told.tell)
				r1.register(t, id)
				time.Sleep(time.Second)
				c := hiccup(t, r2, id) // so it does not overwrite the entry, and must ask
				time.Sleep(2 * r2.Timing().Interval)
				synctest.Wait()
				require.Equal(t, []string{id + " is at r2"}, told.since(), "r1 heard it earlier")
				c.Release()
				w.end(r1)
				w.end(r2)
			})
		})
	}
}

// On a Cluster, only this shows the asking owner that it was heard: PUBLISH counts the listeners of
// one node.
func TestAnOwnerThatIsAskedAboutAnyIDSaysThatItHeard(t *testing.T) {
	t.Parallel()
	for _, id := range oddIDs {
		t.Run(strings.ToValidUTF8(id, "?"), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, w *bubble) {
				var told moves
				r1 := w.start("r1", told.tell)
				r1.register(t, id)
				time.Sleep(time.Second)
				sub := w.Subscribe(t.Context(), w.Heartbeat("r2"))
				_, err := sub.Receive(t.Context())
				require.NoError(t, err)
				w.Publish(t.Context(), w.Heartbeat("r1"), "/r2 1 "+registry.Word(id))
				msg, err := sub.ReceiveMessage(t.Context())
				require.NoError(t, err)
				require.Equal(t, "/r1 heard "+registry.Word(id), msg.Payload)
				require.NoError(t, sub.Close())
				require.Equal(t, []string{id + " is at r2"}, told.since())
				w.end(r1)
			})
		})
	}
}

func TestAnIDThatIsTooLongIsRefusedAndCountedAndNoOtherDeviceSuffers(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		r := w.start("r1")
		long := strings.Repeat("x", 1025)
		refused, other := r.Register(long), r.Register(long[1:])
		require.ErrorIs(t, refused.Wait(t.Context()), registry.ErrIDTooLong)
		require.NoError(t, other.Wait(t.Context()))
		frame(refused)
		refused.Release()
		refused.Release()
		require.EqualValues(t, 1, r.failures("register"))
		require.Equal(t, 1, r.Status().Devices)
		require.EqualValues(t, 1, w.HLen(t.Context(), w.Registry()).Val())
		w.end(r)
	})
}

// The full scan never sweeps an owner with an implausible id, whose heartbeat could be another key.
func TestNewRefusesAnInstanceThatWouldNeverBeSwept(t *testing.T) {
	t.Parallel()
	c := redis.NewClient(lease.Options(&redis.Options{Addr: "127.0.0.1:1"}))
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	for id, good := range map[string]bool{
		"gw-0": true, "{gw}": true, "имя": true, "a%b": true, strings.Repeat("x", 200): true,
		"a b": false, "a/b": false, "a\x00": false, "a\n": false, "a\u0085": false, "a\u00a0b": false, "\u202egnp": false,
		"\xff": false, strings.Repeat("x", 201): false, strings.Repeat("я", 101): false,
	} {
		_, err := registry.New(registry.Config{Client: c, Control: c, Instance: id})
		if good {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "bad Instance")
		}
	}
}
