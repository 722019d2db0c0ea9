package availability

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// Durations of the mitras, and of what judges them.
const (
	stale     = 3 * time.Second // stale_after_seconds
	pingEvery = 400 * time.Millisecond
	places    = 3

	// hammerPause is the longest pause of one who hammers: what is judged are orders of events, and a
	// machine that is too busy has fewer of them.
	hammerPause = 150 * time.Millisecond
)

// Who a mitra is, by its number.
const (
	steady = 8                             // ping all the time
	shaky  = 3                             // ping, and fall silent, and come back
	mute   = 4                             // go online now and then, and never ping
	dying  = 2                             // ping until the fault
	crowd  = steady + shaky + mute + dying // fewer than the mass-failure breaker looks at
)

// people is everybody who uses the service, or goes behind its back. Safe for concurrent use.
type people struct {
	*service
	t  *testing.T
	db *pgxpool.Pool // raw SQL

	ids  []string
	dead context.Context // when it ends, the dying die
	die  context.CancelFunc

	mu       sync.Mutex
	sessions []string
	calm     bool // nobody hammers, the shaky are steady
	rawFails map[string]int
}

func newPeople(t *testing.T, s *service, db *pgxpool.Pool, ids []string) *people {
	p := &people{service: s, t: t, db: db, ids: ids, rawFails: map[string]int{}}
	p.dead, p.die = context.WithCancel(t.Context())
	t.Cleanup(p.die)
	return p
}

// group are the mitras of a kind.
func (p *people) group(from, n int) []string { return p.ids[from : from+n] }

func (p *people) steady() []string { return p.group(0, steady) }

// silent are those who end up offline: nobody of them pings at rest.
func (p *people) silent() []string { return p.group(steady+shaky, mute+dying) }

// pause waits, and tells whether ctx still lasts.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (p *people) isCalm() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calm
}

// calmDown ends the hammering. Whoever pings goes on.
func (p *people) calmDown() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calm = true
}

// live is a mitra's app: it pings, and goes online when it is told that it is not.
func (p *people) live(ctx context.Context, id string, falls bool) {
	for pause(ctx, time.Duration(float64(pingEvery)*(0.5+rand.Float64()))) {
		if falls && !p.isCalm() && rand.IntN(12) == 0 && !pause(ctx, time.Duration(rand.Int64N(int64(3*stale)))) {
			return
		}
		if p.alive(ctx, id, "heartbeat") == http.StatusConflict {
			p.alive(ctx, id, "online")
		}
	}
}

// doze is a mitra's app that goes online, through the service or by hand, and never pings.
func (p *people) doze(ctx context.Context, id string) {
	for pause(ctx, stale+time.Duration(rand.Int64N(int64(stale)))) && !p.isCalm() {
		if rand.IntN(2) == 0 {
			p.alive(ctx, id, "online")
		} else {
			p.raw(ctx, "UPDATE mitra_online_status SET is_online = true WHERE mitra_id = $1", id)
		}
	}
}

// run has everybody live until ctx ends, and the workers hammer until they are to calm down.
func (p *people) run(ctx context.Context, hammering int) (done *sync.WaitGroup) {
	done = &sync.WaitGroup{}
	for i, id := range p.ids {
		switch {
		case i < steady+shaky:
			done.Go(func() { p.live(ctx, id, i >= steady) })
		case i < crowd-dying:
			done.Go(func() { p.doze(ctx, id) })
		case i < crowd:
			done.Go(func() { p.live(p.dead, id, false) })
		}
	}
	for range hammering {
		done.Go(func() {
			for pause(ctx, time.Duration(rand.Int64N(int64(hammerPause)))) && !p.isCalm() {
				p.hammer(ctx)
			}
		})
	}
	return done
}

func (p *people) session() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.sessions) == 0 {
		return "00000000-0000-0000-0000-000000000000"
	}
	return p.sessions[rand.IntN(len(p.sessions))]
}

// search makes a session that waits for a mitra, as other parts of a backend do.
func (p *people) search(ctx context.Context) {
	var id string
	if err := p.db.QueryRow(ctx, "INSERT INTO chat_sessions DEFAULT VALUES RETURNING id::text").Scan(&id); err != nil {
		p.failed("search")
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sessions = append(p.sessions, id); len(p.sessions) > 60 {
		p.sessions = p.sessions[1:]
	}
}

func (p *people) failed(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rawFails[what]++
}

// hammer does one thing at random, through the service or behind its back.
func (p *people) hammer(ctx context.Context) {
	living := p.ids[rand.IntN(crowd-dying)] // the dying are left alone: they die of silence
	silent := p.ids[steady+shaky+rand.IntN(mute)]
	switch n := rand.IntN(20); n {
	case 0:
		p.offline(ctx, living)
	case 1, 2, 3:
		p.activate(ctx, living, rand.IntN(3) > 0)
	case 4, 5, 6, 7:
		p.service.session(ctx, p.session(), "accept", `{"mitra_id": "`+living+`"}`)
	case 8, 9, 10:
		p.service.session(ctx, p.session(), "reroute", `{"mitra_id": "`+living+`"}`)
	case 11, 12, 13:
		p.service.session(ctx, p.session(), "end", `{"status": "completed"}`)
	case 14, 15, 16:
		p.search(ctx)
	case 17:
		p.count(p.call(ctx, p.token("customer", "chaos"), http.MethodGet, "availability", ""))
	default:
		p.byHand(ctx, living, silent)
	}
}

// byHand are statements of psql's. Those that lock many rows do so in the order of ids: two that do
// not may deadlock with one another, with the program or without.
func (p *people) byHand(ctx context.Context, living, silent string) {
	statements := []struct{ sql, id string }{
		{"UPDATE mitra_online_status SET is_online = is_online WHERE mitra_id = $1", living},
		{"UPDATE mitras SET is_active = NOT is_active WHERE id = $1", silent},
		{"UPDATE mitras SET is_active = true WHERE id = $1", living},
		{`WITH mine AS MATERIALIZED (SELECT id FROM chat_sessions WHERE mitra_id = $1
			AND status IN ('active', 'pending_payment') ORDER BY id FOR NO KEY UPDATE)
		  UPDATE chat_sessions s SET status = 'completed' FROM mine WHERE s.id = mine.id`, living},
		{`UPDATE chat_sessions SET status = 'pending_payment' WHERE id =
			(SELECT id FROM chat_sessions WHERE status = 'active' AND mitra_id = $1 LIMIT 1)`, living},
		{`UPDATE chat_sessions SET mitra_id = $1 WHERE id =
			(SELECT id FROM chat_sessions WHERE status = 'active' ORDER BY random() LIMIT 1)`, living},
		{"INSERT INTO chat_sessions (status, mitra_id) VALUES ('active', $1)", silent},
	}
	one := statements[rand.IntN(len(statements))]
	p.raw(ctx, one.sql, one.id)
}

func (p *people) raw(ctx context.Context, sql, id string) {
	if _, err := p.db.Exec(ctx, sql, id); err != nil {
		p.failed(err.Error())
	}
}

// begin has the crowd online, and sessions waiting for it.
func (p *people) begin(ctx context.Context) {
	p.t.Helper()
	for _, id := range p.ids[:crowd] { // more than them would make the breaker hold
		require.Equal(p.t, http.StatusNoContent, p.alive(ctx, id, "online"))
	}
	for range 40 {
		p.search(ctx)
	}
}
