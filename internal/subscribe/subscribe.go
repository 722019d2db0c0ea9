// Package subscribe receives the messages of one Redis channel until it is told to stop, and finds
// out when a connection is dead though nobody closed it.
//
//	subscribe.Channel{
//		Client: ctl, Name: "news", Silence: time.Minute,
//		Retry:   func() time.Duration { return time.Second },
//		Message: func(payload string) { fmt.Println(payload) },
//	}.Run(ctx)
//
// A subscriber only reads. If the other end vanishes without a word (a cable, a firewall, a host
// that died), a read waits for ever. So a subscriber that received nothing for Silence sends a
// PING. If there is no answer within Silence again, it subscribes anew.
//
// All channels of one client share one connection.
//
// Pub/Sub loses messages: those sent while nobody was subscribed never arrive. The users of this
// package find out by other means what they missed; a message makes them find out sooner.
package subscribe

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Channel is what to receive, and which functions are told. All fields but Subscribed are
// required. One goroutine calls the functions.
type Channel struct {
	Client  redis.UniversalClient
	Name    string
	Silence time.Duration        // after so long without a message the server is asked to answer
	Retry   func() time.Duration // the pause before it subscribes again
	Message func(payload string) // is told of each message
	// Subscribed, if set, is told true when a subscription began (messages before it may have been
	// missed), and false when one ended.
	Subscribed func(bool)
	Log        *slog.Logger // of failures, at level Debug: a message that is missed does no harm
}

// Run receives messages until ctx ends.
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
