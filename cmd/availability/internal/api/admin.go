package api

import (
	"context"
	"encoding/json"
	"time"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/availability/postgres"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/token"
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
