package registry

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

// toldPrefix begins a message of another owner about devices in dispute: its id follows, and pairs (see compare). No IMEI begins so.
// Any other message is IMEIs that were taken over: see tell in owner.lua.
const toldPrefix = "/"

// hear listens for devices that have registered elsewhere, and has them looked at. It is a help: what is not heard is found by
// a later look, so errors are for those who look closely.
func (r *Registry) hear(ctx context.Context) error {
	for {
		err := r.subscribed(ctx)
		if ctx.Err() != nil {
			return nil
		}
		r.log.Debug("not subscribed to moves of devices", "error", err)
		if !wait.For(ctx, r.cfg.HeartbeatInterval/10) {
			return nil
		}
	}
}

// subscribed hears until the connection fails or ctx ends.
func (r *Registry) subscribed(ctx context.Context) error {
	sub := r.cfg.Control.Subscribe(ctx, r.keys.Heartbeat(r.id))
	defer sub.Close()
	// A read under way does not heed ctx; closing its connection ends it.
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })()
	for asked := false; ; {
		msg, err := sub.ReceiveTimeout(ctx, r.cfg.HeartbeatTTL)
		var nerr net.Error
		if errors.As(err, &nerr) && nerr.Timeout() && !asked { // long silence is the rule: is anybody there at all?
			asked, err = true, sub.Ping(ctx)
		} else {
			asked = false
		}
		if err != nil {
			return err
		}
		if m, ok := msg.(*redis.Message); ok {
			words := strings.Fields(m.Payload)
			if len(words) > 0 && strings.HasPrefix(words[0], toldPrefix) {
				r.compare(ctx, words[0][len(toldPrefix):], words[1:])
			} else {
				r.suspect(words)
			}
		}
	}
}

// suspect has devices looked at that are said to be elsewhere.
func (r *Registry) suspect(imeis []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, imei := range imeis {
		if d := r.devices[imei]; d != nil && d.claim != nil && d.settled {
			r.enqueue(d, false)
		}
	}
}
