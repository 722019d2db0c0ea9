package live

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability/postgres"
	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
)

// dispatch is what a scene of availability has beside its rig.
type dispatch struct {
	pg    *pgtest.Server
	db    *pgtest.DB
	force []*replica // two simulations, of 40 mitras and of 20
}

// available is a fleet of two replicas on a PostgreSQL of its own, with mitras who work.
func available(d *dispatch, staleAfter int, more ...string) func(r *rig) {
	return func(r *rig) {
		d.pg = pgtest.Start(r)
		d.db = d.pg.Database()
		schema, err := postgres.Open(r.Context(), d.db.URL)
		require.NoError(r, err)
		defer schema.Close()
		require.NoError(r, schema.Migrate(r.Context()))
		require.NoError(r, schema.PutSetting(r.Context(), "stale_after_seconds", staleAfter))
		require.NoError(r, schema.PutSetting(r.Context(), "heartbeat_cadence_seconds", 1))

		settings := slices.Concat([]string{
			"DATABASE_URL=" + d.db.URL, "JWT_HS256_SECRET=" + secret, "AVAILABILITY_LEASE_TTL=2s",
			"MITRA_AUTO_OFFLINE_SWEEP_SECONDS=1.5", "VALKEY_ONLINE_MIRROR_SWEEP_SECONDS=15",
			"HEARTBEAT_MIRROR_INTERVAL_SECONDS=3",
		}, beats, more)
		r.several(2, "availability", settings...)
		var targets []string
		for _, p := range r.jobs["availability"] {
			targets = append(targets, "http://"+p.http)
		}
		for i, mitras := range []int{40, 20} {
			d.force = append(d.force, r.simulate("availability", "simulate", "--database-url="+d.db.URL,
				"--jwt-hs256-secret="+secret, "--targets="+strings.Join(targets, ","), "--seed="+strconv.Itoa(i),
				"--mitras="+strconv.Itoa(mitras), "--interval=1s", "--rest=0", "--die=0", "--sessions=2",
				"--session-lasts=5s", "--polls=3"))
		}
	}
}

// mitras returns the ids of the simulated.
func (d *dispatch) mitras(r *rig) (ids []string) {
	require.NoError(r, d.db.QueryRow(r.Context(), "SELECT array_agg(id::text) FROM mitras").Scan(&ids))
	return ids
}

// onDispatch is a scene with a dispatch of its own.
func onDispatch(alert, fault string, settings []string, strike func(r *rig, d *dispatch)) scene {
	d := &dispatch{}
	s := scene{alert: alert, fault: fault, fleet: available(d, 6, settings...)}
	if strike != nil {
		s.strike = func(r *rig) { strike(r, d) }
	}
	return s
}

var scenesOfAvailability = []scene{
	onDispatch("AvailabilityGone", "kill -9 of all replicas", nil, func(r *rig, _ *dispatch) {
		for _, p := range r.jobs["availability"] {
			p.Kill()
		}
	}),
	onDispatch("AvailabilityMirrorNotWhole",
		"`mitras:seeded` is deleted, and the replicas' user of Redis may not `SET` it", nil,
		func(r *rig, _ *dispatch) {
			r.deny("~[^m]*", "~mitra:*", "~mitras:[^s]*", "~mitras:seeding", "(~* &* +@all -set)")
			r.must("DEL", "mitras:seeded")
		}),
	onDispatch("AvailabilityPostgresAway", "Postgres is killed", nil,
		func(_ *rig, d *dispatch) { d.pg.Kill() }),
	onDispatch("AvailabilityReadsFail",
		"the replicas' user of Redis loses the right to `SSCAN`, and somebody locks the states in Postgres", nil,
		func(r *rig, d *dispatch) {
			tx, err := d.db.Begin(r.Context())
			require.NoError(r, err)
			r.Cleanup(func() { _ = tx.Rollback(context.Background()) })
			_, err = tx.Exec(r.Context(), "LOCK TABLE mitra_availability_state IN ACCESS EXCLUSIVE MODE")
			require.NoError(r, err)
			r.must("ACL", "SETUSER", "default", "-sscan")
			for range 12 { // more than may ask Postgres at once
				r.again(100*time.Millisecond, func(ctx context.Context) {
					r.ask(ctx, "service", "dispatch", "GET", "available")
				})
			}
		}),
	onDispatch("AvailabilityFallsBack", "the replicas' user of Redis loses the right to `SSCAN`", nil,
		func(r *rig, _ *dispatch) { r.must("ACL", "SETUSER", "default", "-sscan") }),
	onDispatch("AvailabilityAppliesFail", "the replicas' user of Redis may not write `mitra:capacity:*`", nil,
		func(r *rig, _ *dispatch) { r.deny("~[^m]*", "~mitras:*", "~mitra:[^c]*", "%R~mitra:c*") }),
	onDispatch("AvailabilityDrift", "somebody sets `mitra:capacity:ID`", nil, func(r *rig, d *dispatch) {
		r.must("SET", "mitra:capacity:"+d.mitras(r)[0], 99)
	}),
	onDispatch("AvailabilityBadKeys", "`availability:snapshot` is a list", nil, func(r *rig, _ *dispatch) {
		r.must("DEL", "availability:snapshot")
		r.must("LPUSH", "availability:snapshot", "x")
	}),
	onDispatch("AvailabilityReseeds", "`DEL mitras:seeded`, a dozen times", nil, func(r *rig, _ *dispatch) {
		for range 13 {
			r.must("DEL", "mitras:seeded")
			r.await("it is seeded again",
				func() bool { return r.rdb.Exists(r.Context(), "mitras:seeded").Val() == 1 })
		}
	}),
	onDispatch("AvailabilityNobodyGoesOffline", "`MITRA_AUTO_OFFLINE_SWEEP_SECONDS` is an hour", []string{
		"MITRA_AUTO_OFFLINE_SWEEP_SECONDS=3600",
	}, nil),
	onDispatch("AvailabilityManyGoOffline", "a third of the apps die", nil,
		func(_ *rig, d *dispatch) { d.force[1].Kill() }),
	onDispatch("AvailabilityHeartbeatsNotStored", "`HEARTBEAT_MIRROR_INTERVAL_SECONDS` is an hour", []string{
		"HEARTBEAT_MIRROR_INTERVAL_SECONDS=3600",
	}, nil),
}

// ask makes a request of the API as somebody. What the answer is does not matter.
func (r *rig) ask(ctx context.Context, as, subject, method, path string) {
	claims := jwt.MapClaims{"sub": subject, "userType": as, "exp": time.Now().Add(time.Hour).Unix()}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(secret))
	if err != nil {
		return
	}
	url := "http://" + r.jobs["availability"][0].http + "/api/v1/" + path
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return
	}
	req.Header.Set("Authorization", "Bearer "+token)
	answer, err := asker.Do(req)
	if err != nil {
		return
	}
	_ = answer.Body.Close()
}

// asker keeps no connection open, since those would look like leaks.
var asker = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
