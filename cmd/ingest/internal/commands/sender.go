package commands

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/together"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/registry"
)

const (
	// lag is how long the registry may take to name a device's new instance, which is looked up
	// every beat.
	lag, beat = 3 * time.Second, 100 * time.Millisecond
	// A queued command may have been sent just before it expired, by an instance that died.
	grace, queueGrace = 5 * time.Second, 4 * lifetime
)

// ErrNoOutcome means that the instance is dead or stopped. If it is dead, the janitor's sweep will
// answer instance_lost.
var ErrNoOutcome = errors.New("commands: no outcome in time")

// Sender sends commands and waits for their outcomes.
type Sender struct {
	// Client should not retry by itself: Send does, as an entry added twice is harmless.
	Client redis.UniversalClient
	Layout registry.Layout
	// Lookup is registry.Registry.Lookup.
	Lookup func(ctx context.Context, imei string) (registry.Owner, error)
}

// Send sends a command to the instance that the registry names for its device, and waits for the
// outcome. If the device has moved, Send tries the new instance, each time with a new id, until the
// command expires. An empty ID is replaced by a random one. A zero Expires means a minute from now;
// with Queue, for which Send asks no registry, a day.
//
// Errors: registry.ErrNotRegistered, ErrNoOutcome, the cause of ctx' end, or Redis' own.
func (s *Sender) Send(ctx context.Context, c Command) (Outcome, error) {
	if c.ID = cmp.Or(c.ID, rand.Text()); !validID(c.ID) {
		return Outcome{}, fmt.Errorf("%w: want 1 to %d visible ASCII characters", errNoID, maxID)
	}
	if c.Expires.IsZero() {
		c.Expires = time.Now().Add(lifetime)
		if c.Queue {
			c.Expires = c.Expires.Add(maxLifetime - lifetime - lag) // a clock that differs a little
		}
	}
	late := c.Expires.Add(grace)
	if c.Queue {
		late = c.Expires.Add(queueGrace)
	}
	ctx, cancel := context.WithDeadlineCause(ctx, late, ErrNoOutcome)
	defer cancel()
	if c.Queue {
		return s.once(ctx, Queue(s.Layout), c)
	}
	owner, err := s.Lookup(ctx, c.IMEI)
	if err != nil {
		return Outcome{}, err
	}
	if !owner.Live { // no answer would come before the janitor's next pass
		return Outcome{
			ID: c.ID, IMEI: c.IMEI, Instance: owner.Instance, Status: NotConnected,
			Text: "the instance that the registry names has no heartbeat",
		}, nil
	}
	for {
		o, err := s.once(ctx, Outbound(s.Layout, owner.Instance), c)
		if err != nil || o.Status != NotConnected {
			return o, err
		}
		var moved bool
		if owner, moved = s.elsewhere(ctx, c, owner.Instance); !moved {
			return o, nil
		}
		c.ID = rand.Text()
	}
}

func (s *Sender) once(ctx context.Context, stream string, c Command) (Outcome, error) {
	last, err := s.Client.XRevRangeN(ctx, Responses(s.Layout), "+", "-", 1).Result()
	if err != nil {
		return Outcome{}, fmt.Errorf("commands: %w", err)
	}
	from := "0"
	if len(last) > 0 {
		from = last[0].ID
	}
	// Without an answer it may have been added. A second entry with its id is only removed.
	for pause := wait.Between(pauseFirst, pauseMost); ; {
		err = s.Client.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: []any{
			"id", c.ID, "imei", c.IMEI, "text", c.Text, "codec", cmp.Or(c.Codec, 12),
			"expires", c.Expires.UnixMilli(),
		}}).Err()
		if err == nil {
			break
		}
		if together.Answered(err) {
			return Outcome{}, fmt.Errorf("commands: %w", err)
		}
		if !pause.Wait(ctx) {
			return Outcome{}, fmt.Errorf("commands: %s may have been added to %s: %w", c.ID, stream, err)
		}
	}
	for pause := wait.Between(pauseFirst, pauseMost); ; {
		streams, err := s.Client.XRead(ctx, &redis.XReadArgs{
			Streams: []string{Responses(s.Layout), from}, Count: readMost, Block: beat,
		}).Result()
		if ctx.Err() != nil {
			return Outcome{}, fmt.Errorf("%w (command %s in %s)", context.Cause(ctx), c.ID, stream)
		}
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil && !together.Answered(err) && pause.Wait(ctx) {
			continue
		}
		if err != nil {
			return Outcome{}, fmt.Errorf("commands: wait for the outcome of %s in %s: %w", c.ID, stream, err)
		}
		for _, m := range streams[0].Messages {
			if from = m.ID; m.Values["id"] == c.ID {
				return outcome(m), nil
			}
		}
	}
}

// elsewhere returns a living instance other than not. The registry may name it only a while later.
func (s *Sender) elsewhere(ctx context.Context, c Command, not string) (_ registry.Owner, moved bool) {
	ctx, cancel := context.WithDeadline(ctx, c.Expires)
	defer cancel()
	for until := time.Now().Add(lag); ; {
		owner, err := s.Lookup(ctx, c.IMEI)
		if err == nil && owner.Instance != not && owner.Live {
			return owner, true
		}
		if time.Now().After(until) || !wait.For(ctx, beat) {
			return registry.Owner{}, false
		}
	}
}
