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
// Pub/Sub loses messages: those sent while nobody was subscribed never arrive. The users of this
// package find out by other means what they missed; a message makes them find out sooner.
package subscribe

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/wait"
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
	for {
		err := c.receive(ctx)
		if ctx.Err() != nil {
			return
		}
		c.Log.Debug("not subscribed", "channel", c.Name, "error", err)
		if !wait.For(ctx, c.Retry()) {
			return
		}
	}
}

// receive receives messages until the connection fails or ctx ends.
func (c Channel) receive(ctx context.Context) error {
	sub := c.Client.Subscribe(ctx, c.Name)
	defer sub.Close()
	defer c.Subscribed(false)
	// A read under way does not heed ctx; closing its connection ends it.
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })()
	for asked := false; ; {
		msg, err := sub.ReceiveTimeout(ctx, c.Silence)
		if nerr, ok := errors.AsType[net.Error](err); ok && nerr.Timeout() && !asked {
			asked, err = true, sub.Ping(ctx)
		} else {
			asked = false
		}
		if err != nil {
			return err
		}
		switch m := msg.(type) {
		case *redis.Subscription:
			c.Subscribed(true)
		case *redis.Message:
			c.Message(m.Payload)
		}
	}
}
