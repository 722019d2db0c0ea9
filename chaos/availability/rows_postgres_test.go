package availability

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
)

// postgresKilled kills Postgres with all its connections, in the middle of everything.
func postgresKilled(w *world) {
	w.pg.Kill()
	harness.Lasting(2 * time.Second)
	w.pg.Restart()
}

// postgresAway is away for longer than a mitra may be silent. Who pings is online all the time:
// heartbeats need no Postgres.
func postgresAway(w *world) {
	w.pg.Kill()
	lasting()
	for _, id := range sorted(w.replicas) {
		_, from, err := w.available(w.Context(), w.replicas[id].HTTP)
		require.NoError(w, err)
		require.Equal(w, "valkey", from)
	}
	w.pg.Restart()
}

// postgresFrozen answers nothing for longer than anybody waits, and goes on then.
func postgresFrozen(w *world) {
	w.pg.Stop()
	harness.Lasting(7 * time.Second)
	w.pg.Cont()
}

// postgresFailedOver ends Postgres while its standby is behind, which is promoted then.
func postgresFailedOver(w *world) {
	w.standby.Detach()
	w.works()
	w.pg.Kill()
	w.former += w.pg.Log()
	copied := w.pg.Copy()
	harness.Lasting(time.Second)
	w.standby.Promote()
	w.pg, w.lost = w.standby, append(w.lost, lostTime{copied, time.Now()})
}
