// Package subscribe receives the messages of a Redis channel, and detects silently dead
// connections.
//
//	subscribe.Channel{
//		Client: ctl, Name: "news", Silence: time.Minute,
//		Retry:   func() time.Duration { return time.Second },
//		Message: func(payload string) { fmt.Println(payload) },
//	}.Run(ctx)
//
// If the other end vanishes silently, a read waits for ever. So after Silence without a message it
// sends a PING, and after Silence without an answer it subscribes again. All channels of one client
// share one connection. A PING proves nothing of a server that is not the primary any more: whoever
// finds that messages do not arrive calls Renew.
//
// Pub/Sub loses messages while nobody is subscribed. Users must find out by other means what they
// missed.
package subscribe

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
)

// Channel requires all fields but Subscribed.
type Channel struct {
	Client  redis.UniversalClient
	Name    string
	Silence time.Duration        // without a message before a PING
	Retry   func() time.Duration // before it subscribes again
	Message func(payload string)
	// Subscribed is called with true when a subscription begins (earlier messages may have been
	// missed), and with false when it ends.
	Subscribed func(bool)
	Log        *slog.Logger // failures at DEBUG: a missed message does no harm
}

// Renew subscribes the channels of a client on a new connection, if they are subscribed: the server
// of the present one answers, but may not be where others publish any more.
func Renew(client redis.UniversalClient) {
	connections.Lock()
	h := connections.of[client]
	connections.Unlock()
	if h == nil {
		return
	}
	if sub := h.change(func() {}); sub != nil {
		_ = sub.Close() // its reader notices
	}
}

// Run receives until ctx ends.
func (c Channel) Run(ctx context.Context) {
	if c.Subscribed == nil {
		c.Subscribed = func(bool) {}
	}
	m := join(c)
	defer m.leave()
	subscribed := false
	defer func() {
		if subscribed {
			c.Subscribed(false)
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-m.events:
			switch e.kind {
			case message:
				c.Message(e.payload)
			default:
				subscribed = e.kind == begun
				c.Subscribed(subscribed)
			}
		}
	}
}
