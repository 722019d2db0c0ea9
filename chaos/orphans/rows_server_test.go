package orphans

import (
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/history"
)

// restarted kills Redis and starts it again, with its file or empty.
func restarted(withFile bool) func(w *world) {
	return func(w *world) {
		w.server.Kill()
		if !withFile {
			last := &w.parts[len(w.parts)-1]
			*last = w.TempDir()
			require.NoError(w, history.SetAside(w.server.Dir(), *last))
			w.parts = append(w.parts, w.server.Dir())
		}
		harness.Lasting(time.Second)
		w.server.Restart()
		w.goes(w.backend.leak())
	}
}

// evicts has Redis drop any keys it likes, for some seconds.
func evicts(w *world) {
	ctx := w.Context()
	fill := func() {
		_, _ = w.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // some are refused
			for i := range 400 {
				p.Set(ctx, fillKey+strconv.Itoa(i), strings.Repeat("x", 1000), 0)
			}
			return nil
		})
	}
	fill()
	used, err := strconv.Atoi(harness.InfoOf(w, w.rdb, "Memory", "used_memory"))
	require.NoError(w, err)
	require.NoError(w, w.rdb.ConfigSet(ctx, "maxmemory-policy", "allkeys-random").Err())
	require.NoError(w, w.rdb.ConfigSet(ctx, "maxmemory", strconv.Itoa(used-200_000)).Err())
	for range 10 {
		fill()
		harness.Lasting(300 * time.Millisecond)
	}
	require.NoError(w, w.rdb.ConfigSet(ctx, "maxmemory", "0").Err())
	w.meddle("the memory is free", func(p redis.Pipeliner) {
		for i := range 400 {
			p.Del(ctx, fillKey+strconv.Itoa(i))
		}
	})
	w.goes(w.backend.leak())
}

// flushed empties Redis under a backend that lives: its rooms have their channels alone.
func flushed(w *world) {
	w.meddle("FLUSHALL", func(p redis.Pipeliner) { p.FlushAll(w.Context()) })
	w.goes(w.backend.leak())
}
