package judge

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/history"
)

// big writes the history of a long run to a file: owners that register devices, in batches, and
// die; every device is swept. Each third device is looked up now and then.
func big(t testing.TB, owners, devices int) (path string, f Facts) {
	t.Helper()
	s := newBuilder()
	s.boots("leader")
	s.leads("leader")
	s.passes(9 * time.Second)
	const page = 100
	for o := range owners {
		id := "owner-" + strconv.Itoa(o)
		s.boots(id)
		var imeis []string
		for d := range devices {
			// One registration is one event, as on a device's connection.
			imei := fmt.Sprintf("%d%014d", o%9+1, d)
			imeis = append(imeis, imei)
			s.registers(id, imei)
			if d%1000 == 0 {
				s.seen(imei, id, time.Second, 2*time.Second)
			}
		}
		s.passes(4 * time.Second)
		s.died(id, Killed, false)
		s.dies(id)
		s.passes(7 * time.Second)
		s.expires(id)
		for from := 0; from < len(imeis); from += page {
			s.happens("%s", s.evicts(id, imeis[from:min(from+page, len(imeis))]...))
		}
		s.happens("SREM instances:roster %s", id)
		s.passes(time.Second)
	}
	path = filepath.Join(t.TempDir(), "big")
	require.NoError(t, history.Write(path, s.history))
	return path, s.facts
}

// BenchmarkABigHistory reads and judges a soak's worth: a million evictions, ten million words. A
// minute and 3 GB are too much.
func BenchmarkABigHistory(b *testing.B) {
	path, f := big(b, 50, 20_000)
	info, err := os.Stat(path)
	require.NoError(b, err)
	b.SetBytes(info.Size())
	runtime.GC()
	for b.Loop() {
		begun := time.Now()
		h, err := history.Read(path)
		require.NoError(b, err)
		read := time.Since(begun)
		v := Judge(h, f)
		require.Empty(b, v.Violations)
		require.Equal(b, 1_000_000, v.Evicted(""))
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(m.HeapSys)/(1<<20), "heap-MB")
		b.ReportMetric(read.Seconds(), "s-reading")
	}
}

// A tenth of that in an ordinary run, to see that nothing of it is slow in the square of its size.
func TestALongHistoryIsJudged(t *testing.T) {
	t.Parallel()
	path, f := big(t, 5, 2_000)
	h, err := history.Read(path)
	require.NoError(t, err)
	v := Judge(h, f)
	require.Empty(t, v.Violations)
	require.Equal(t, 10_000, v.Evicted(""))
	require.Len(t, v.Clean, 5)
}
