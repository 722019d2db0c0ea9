package api

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/token"
)

func (a *API) snapshot(c *call) error {
	s, err := a.mirror.Snapshot(c.Context())
	if err != nil {
		return err
	}
	c.from(s.From, s.Age)
	return c.answer(s.Value)
}

const mostAvailable = 1_000_000

func (a *API) available(c *call) error {
	limit, err := number(c.params, "limit", 1, mostAvailable, 0)
	if err != nil {
		return err
	}
	found, err := a.mirror.FindAvailable(c.Context(), limit)
	if err != nil {
		return err
	}
	c.from(found.From, found.Age)
	if found.Value == nil {
		found.Value = []availability.Available{}
	}
	return c.answer(found.Value)
}

type mitraBody struct {
	MitraID string `json:"mitra_id"`
}

type giving func(ctx context.Context, session, mitra string) (availability.Session, error)

func (a *API) accept(c *call) error  { return give(c, a.mirror.Accept) }
func (a *API) reroute(c *call) error { return give(c, a.mirror.Reroute) }

func give(c *call, do giving) error {
	session, err := c.id("id")
	if err != nil {
		return err
	}
	var body mitraBody
	if err := c.body(&body); err != nil {
		return err
	}
	mitra, ok := token.UUID(body.MitraID)
	if !ok {
		return badRequest.because("mitra_id: expected a UUID")
	}
	s, err := do(c.Context(), session, mitra)
	if err != nil {
		return err
	}
	return c.answer(s)
}

func (a *API) end(c *call) error {
	session, err := c.id("id")
	if err != nil {
		return err
	}
	var body struct {
		Status string `json:"status"`
	}
	if err := c.body(&body); err != nil {
		return err
	}
	status, ok := a.endings[body.Status]
	if !ok {
		return badRequest.because("status: expected one of %s",
			strings.Join(slices.Sorted(maps.Keys(a.endings)), ", "))
	}
	s, err := a.mirror.End(c.Context(), session, status)
	if err != nil {
		return err
	}
	return c.answer(s)
}

func (a *API) extend(c *call) error {
	session, err := c.id("id")
	if err != nil {
		return err
	}
	var body struct {
		Paid *bool `json:"paid"`
	}
	if err := c.body(&body); err != nil {
		return err
	}
	if body.Paid == nil {
		return badRequest.because("paid: expected true or false")
	}
	s, err := a.mirror.Extend(c.Context(), session, *body.Paid)
	if err != nil {
		return err
	}
	return c.answer(s)
}

func (a *API) reachable(c *call) error {
	id, err := c.id("id")
	if err != nil {
		return err
	}
	r, err := a.mirror.Reachable(c.Context(), id)
	if err != nil {
		return err
	}
	c.from(r.From, r.Age)
	return c.answer(struct {
		ID        string `json:"id"`
		Reachable bool   `json:"reachable"`
	}{id, r.Value})
}
