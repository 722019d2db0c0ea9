package api

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/availability/postgres"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/token"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

type mitra struct {
	ID       string     `json:"id"`
	Online   bool       `json:"is_online"`
	Active   bool       `json:"is_active"`
	Sessions int        `json:"active_session_count"`
	LastSeen *time.Time `json:"last_seen_at"`
}

func mitraOf(s availability.State) mitra {
	return mitra{s.ID, s.Online, s.Active, s.Sessions, moment(s.Seen)}
}

type listed struct {
	mitra
	Name        *string    `json:"display_name"`
	LastOnline  *time.Time `json:"last_online_at"`
	LastOffline *time.Time `json:"last_offline_at"`
}

const (
	defaultMitras = 100
	mostMitras    = 1000
)

func (a *API) mitras(c *call) error {
	asked, err := listing(c)
	if err != nil {
		return err
	}
	limit := asked.Limit
	asked.Limit++ // one more shows whether there is a next page
	ctx, cancel := context.WithTimeout(c.Context(), listTimeout)
	defer cancel()
	found, err := a.source.List(ctx, asked)
	if err != nil {
		return err
	}
	list := mitraList{Mitras: []listed{}}
	for _, m := range found[:min(limit, len(found))] {
		list.Mitras = append(list.Mitras,
			listed{mitraOf(m.State), m.Name, moment(m.LastOnline), moment(m.LastOffline)})
	}
	if len(found) > limit {
		list.Next = found[limit-1].ID
	}
	c.from(availability.FromPostgres, 0)
	return c.answer(list)
}

func listing(c *call) (l postgres.Listing, err error) {
	q := c.params
	if l.Limit, err = number(q, "limit", 1, mostMitras, defaultMitras); err != nil {
		return l, err
	}
	if q.Has("online") {
		online := q.Get("online") == "true"
		if !online && q.Get("online") != "false" {
			return l, badRequest.because("online: expected true or false")
		}
		l.Online = &online
	}
	if l.ByName = q.Get("sort") == "display_name"; q.Has("sort") && !l.ByName && q.Get("sort") != "id" {
		return l, badRequest.because("sort: expected id or display_name")
	}
	if q.Has("after") {
		var ok bool
		if l.After, ok = token.UUID(q.Get("after")); !ok {
			return l, badRequest.because("after: expected a UUID")
		}
	}
	return l, nil
}

func (a *API) countOnline(c *call) error {
	n, err := a.mirror.CountOnline(c.Context())
	if err != nil {
		return err
	}
	c.from(n.From, n.Age)
	return c.answer(struct {
		Count int `json:"count"`
	}{n.Value})
}

// mitraList is one page. Next is the `after` of the next page, or empty.
type mitraList struct {
	Mitras []listed `json:"mitras"`
	Next   string   `json:"next,omitempty"`
}

const listTimeout = 10 * time.Second

func (a *API) setActive(c *call) error {
	id, err := c.id("id")
	if err != nil {
		return err
	}
	var body struct {
		Active *bool `json:"is_active"`
	}
	if err := c.body(&body); err != nil {
		return err
	}
	if body.Active == nil {
		return badRequest.because("is_active: expected true or false")
	}
	do := a.mirror.Deactivate
	if *body.Active {
		do = a.mirror.Activate
	}
	s, err := do(c.Context(), id)
	if err != nil {
		return err
	}
	return c.answer(mitraOf(s))
}

type settings struct {
	MaxCustomers int  `json:"max_customers_per_mitra"`
	StaleSeconds int  `json:"stale_after_seconds"`
	RequirePing  bool `json:"require_ping"`
	PingSeconds  int  `json:"heartbeat_cadence_seconds"`
}

func (a *API) answerSettings(c *call) error {
	s, err := a.mirror.Settings(c.Context())
	if err != nil {
		return err
	}
	return c.answer(settings{
		s.MaxCustomers, int(s.StaleAfter / time.Second), s.RequirePing, int(s.PingInterval / time.Second),
	})
}

func (a *API) putSetting(c *call) error {
	var body struct {
		Value json.RawMessage `json:"value"`
	}
	if err := c.body(&body); err != nil {
		return err
	}
	if body.Value == nil {
		return badRequest.because("value: it is missing")
	}
	if err := a.mirror.PutSetting(c.Context(), c.PathValue("name"), body.Value); err != nil {
		return err
	}
	return a.answerSettings(c)
}

// changes are when a mitra last went online and offline, which only Postgres knows; null: never.
type changes struct {
	LastOnline  *time.Time `json:"last_online_at"`
	LastOffline *time.Time `json:"last_offline_at"`
}

// changesAgain is for how long Postgres is left alone after it did not answer, so that polls do not
// each wait for it.
const changesAgain = time.Second

// changesAsked are the questions about changes.
type changesAsked struct {
	source Source
	asking *semaphore.Weighted
	failed atomic.Pointer[time.Time]
}

func newChangesAsked(source Source) *changesAsked {
	return &changesAsked{source: source, asking: semaphore.NewWeighted(heartbeatsAtSource)}
}

// of returns nil if Postgres has no such mitra, or cannot be asked.
func (k *changesAsked) of(ctx context.Context, id string) *changes {
	if at := k.failed.Load(); at != nil && time.Since(*at) < changesAgain {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := k.asking.Acquire(ctx, 1)
	if err == nil {
		defer k.asking.Release(1)
		m, asked := k.source.Mitra(ctx, id)
		if err = asked; err == nil {
			return &changes{moment(m.LastOnline), moment(m.LastOffline)}
		}
	}
	if !errors.Is(err, availability.ErrNotFound) && !errors.Is(err, context.Canceled) { // the caller went away
		now := time.Now()
		k.failed.Store(&now)
	}
	return nil
}

// Counts are the numbers of mitras, as last read.
type Counts struct {
	// At is when Online and Available were read, zero if never.
	Online    int                 `json:"online"`
	Available int                 `json:"available"`
	At        time.Time           `json:"at,omitzero"`
	Source    availability.Origin `json:"source,omitempty"`
	// Error is why the last read failed.
	Error string `json:"error,omitempty"`
}

const countEvery = 2 * time.Second

// Counts returns the last result of Run.
func (a *API) Counts() (known Counts) {
	if last := a.counts.Load(); last != nil {
		known = *last
	}
	return known
}

// Run counts mitras, for status and metrics, until ctx ends.
func (a *API) Run(ctx context.Context) error {
	for {
		found := a.count(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if why := found.Error; why != "" {
			found = a.Counts()
			found.Error = why
		}
		a.counts.Store(&found)
		if !wait.For(ctx, countEvery) {
			return nil
		}
	}
}

func (a *API) count(ctx context.Context) Counts {
	online, err := a.mirror.CountOnline(ctx)
	if err != nil {
		return Counts{Error: err.Error()}
	}
	s, err := a.mirror.Snapshot(ctx)
	if err != nil {
		return Counts{Error: err.Error()}
	}
	return Counts{Online: online.Value, Available: s.Value.Count, At: time.Now(), Source: online.From}
}

func (a *API) gauges() []prometheus.Collector {
	gauge := func(name, help string, value func(Counts) int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return float64(value(a.Counts())) })
	}
	return []prometheus.Collector{
		gauge("availability_mitras_online", "Mitras who are online, as last asked.",
			func(c Counts) int { return c.Online }),
		gauge("availability_mitras_available", "Mitras who can take work, as last asked.",
			func(c Counts) int { return c.Available }),
	}
}
