package api

import (
	"context"
	"encoding/json"
	"time"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/internal/token"
)

// mitra is what an administrator sees of one.
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

const (
	defaultMitras = 100
	mostMitras    = 1000
)

// mitras lists them as Postgres knows them, in the order of their ids.
func (a *API) mitras(c *call) error {
	q, err := c.query("online", "after", "limit")
	if err != nil {
		return err
	}
	limit, err := number(q, "limit", 1, mostMitras, defaultMitras)
	if err != nil {
		return err
	}
	want := func(availability.State) bool { return true }
	switch {
	case !q.Has("online"):
	case q.Get("online") == "true":
		want = func(s availability.State) bool { return s.Online }
	case q.Get("online") == "false":
		want = func(s availability.State) bool { return !s.Online }
	default:
		return badRequest.because("online: expected true or false")
	}
	after := ""
	if q.Has("after") {
		var ok bool
		if after, ok = token.UUID(q.Get("after")); !ok {
			return badRequest.because("after: expected a UUID")
		}
	}
	list, err := a.list(c.Context(), after, limit, want)
	if err != nil {
		return err
	}
	c.from(availability.FromPostgres, 0)
	return c.answer(list)
}

// mitraList is one page. Next is where the next one begins; empty: there is none.
type mitraList struct {
	Mitras []mitra `json:"mitras"`
	Next   string  `json:"next,omitempty"`
}

// list reads until it has as many as it should.
func (a *API) list(
	ctx context.Context, after string, limit int, want func(availability.State) bool,
) (list mitraList, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	list.Mitras = []mitra{}
	for {
		states, err := a.source.Page(ctx, after, mostMitras)
		if err != nil {
			return list, err
		}
		for _, s := range states {
			if !want(s) {
				continue
			}
			if len(list.Mitras) == limit {
				list.Next = list.Mitras[limit-1].ID
				return list, nil
			}
			list.Mitras = append(list.Mitras, mitraOf(s))
		}
		if len(states) < mostMitras {
			return list, nil
		}
		after = states[len(states)-1].ID
	}
}

// listTimeout bounds one list.
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

// settings are the four, by their names in app_config.
type settings struct {
	MaxCustomers int  `json:"max_customers_per_mitra"`
	StaleSeconds int  `json:"stale_after_seconds"`
	RequirePing  bool `json:"require_ping"`
	PingSeconds  int  `json:"heartbeat_cadence_seconds"`
}

func (a *API) settings(c *call) error {
	if _, err := c.query(); err != nil {
		return err
	}
	return a.answerSettings(c)
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
