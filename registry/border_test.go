package registry_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestADeviceThatRegistersAgainIsNoReasonToCompareTheIndex(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		r := w.start("r1")
		r.register(t, "imei")
		r.register(t, "imei")
		synctest.Wait()
		var scans atomic.Int64
		r.data.set(func(cmd redis.Cmder) error {
			if cmd.Name() == "sscan" {
				scans.Add(1)
			}
			return nil
		}, nil)
		time.Sleep(5 * r.Timing().Interval)
		synctest.Wait()
		require.Zero(t, scans.Load())
		w.end(r)
	})
}
