package registry_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/registry"
)

func TestEvidenceFromBeforeAnOutageTakesNothingBack(t *testing.T) {
	t.Parallel()
	withAndWithoutIndex(t, func(t *testing.T, w *bubble, index func(*registry.Config)) {
		r1, r2 := w.start("r1", index), w.start("r2", index)
		c := r1.register(t, "imei")
		time.Sleep(2 * time.Second)
		w.HSet(t.Context(), w.Registry(), "imei", "r2") // a late write of r2
		frame(c)                                        // sees r2, and is acknowledged
		require.Equal(t, "r2", w.owner("imei"))
		r1.data.set(always, nil)
		r1.control.set(always, nil)
		c.FrameReceived() // would be proof, if it could be used
		time.Sleep(5 * time.Minute)
		r2.register(t, "imei") // long after it has really moved there
		time.Sleep(2 * time.Minute)
		r1.data.set(nil, nil)
		r1.control.set(nil, nil)
		time.Sleep(20 * time.Minute)
		require.Equal(t, "r2", w.owner("imei"))

		frame(c) // evidence again: a frame was acknowledged after the claim was seen again,
		c.FrameReceived()
		synctest.Wait()
		require.Equal(t, "r1", w.owner("imei"))
		c.Release()
		w.end(r1)
		w.kill(r2)
	})
}

func TestEvidenceCountsForASecond(t *testing.T) {
	t.Parallel()
	for waited, owner := range map[time.Duration]string{900 * time.Millisecond: "r1", 1100 * time.Millisecond: "r2"} {
		t.Run(waited.String(), func(t *testing.T) {
			t.Parallel()
			for name, on := range map[string]func(cmd redis.Cmder) bool{
				"while another check is under way":          func(cmd redis.Cmder) bool { return checkedBy(cmd) != nil },
				"while a registration before it is written": func(cmd redis.Cmder) bool { return strings.HasPrefix(cmd.Name(), "eval") },
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					inBubble(t, func(t *testing.T, w *bubble) {
						r := w.start("r1")
						c, other := r.register(t, "imei"), r.register(t, "other")
						time.Sleep(2 * time.Second)
						w.HSet(t.Context(), w.Registry(), "imei", "r2")
						frame(c)
						require.Equal(t, "r2", w.owner("imei"))
						var once sync.Once
						begun := make(chan struct{})
						r.data.set(func(cmd redis.Cmder) error {
							if on(cmd) {
								once.Do(func() {
									close(begun)
									time.Sleep(waited)
								})
							}
							return nil
						}, nil)
						if strings.HasPrefix(name, "while another check") {
							other.FrameReceived()
							<-begun
							c.FrameReceived()
						} else { // both in one batch
							c.FrameReceived()
							r.Register("third")
						}
						time.Sleep(waited + 20*time.Millisecond)
						<-begun
						require.Equal(t, owner, w.owner("imei"))
						time.Sleep(r.Timing().Interval)
						require.Equal(t, owner, w.owner("imei"), "it is not used later")
						frame(c)
						c.FrameReceived()
						synctest.Wait()
						require.Equal(t, "r1", w.owner("imei"))
						w.kill(r)
					})
				})
			}
		})
	}
}

func TestAFailureDropsTheEvidence(t *testing.T) {
	t.Parallel()
	for name, failing := range map[string]string{"of a check": "evalsha_ro", "of a heal": "evalsha"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, w *bubble) {
				r := w.start("r1")
				c := r.register(t, "imei")
				time.Sleep(2 * time.Second)
				w.HSet(t.Context(), w.Registry(), "imei", "r2")
				frame(c)
				var failed atomic.Bool
				r.data.set(func(cmd redis.Cmder) error {
					if cmd.Name() == failing && failed.CompareAndSwap(false, true) {
						return errLost
					}
					return nil
				}, nil)
				if failing == "evalsha" {
					c.FrameReceived() // proof, but the heal fails
				}
				time.Sleep(r.Timing().Interval / 5)
				require.True(t, failed.Load())
				c.FrameReceived()
				synctest.Wait()
				require.Equal(t, "r2", w.owner("imei"), "nothing was acknowledged since its claim was last seen")
				c.FrameAcked()
				c.FrameReceived()
				synctest.Wait()
				require.Equal(t, "r1", w.owner("imei"))
				w.end(r)
			})
		})
	}
}
