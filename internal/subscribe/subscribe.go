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
	"errors"
	"iter"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/wait"
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

const queued = 256

type kind uint8

const (
	message kind = iota
	begun
	ended
)

type event struct {
	kind    kind
	payload string
}

var connections = struct {
	sync.Mutex
	of map[redis.UniversalClient]*connection
}{of: map[redis.UniversalClient]*connection{}}

// connection is shared by a client's channels, and lives while one of them runs. No lock is held
// during calls to the server.
type connection struct {
	client redis.UniversalClient
	end    context.CancelFunc
	done   chan struct{} // ended

	mu      sync.Mutex
	members map[string][]*member // by channel; a process may have several for one
	sub     *redis.PubSub
}

type member struct {
	Channel
	connection *connection
	events     chan event
}

func join(c Channel) *member {
	m := &member{Channel: c, events: make(chan event, queued)}
	connections.Lock()
	h, known := connections.of[c.Client]
	if !known {
		h = &connection{client: c.Client, done: make(chan struct{}), members: map[string][]*member{}}
		connections.of[c.Client] = h
	}
	m.connection = h
	sub := h.change(func() { h.members[c.Name] = append(h.members[c.Name], m) })
	if !known { // only now does it have a channel
		var ctx context.Context
		ctx, h.end = context.WithCancel(context.Background())
		go func() {
			defer close(h.done)
			h.run(ctx)
		}()
	}
	connections.Unlock()
	// If another member has the channel already, Redis confirms it again, which m needs. An error
	// ends the connection: its reader gets it too.
	if sub != nil {
		_ = sub.Subscribe(context.Background(), c.Name)
	}
	return m
}

func (m *member) leave() {
	h, alone, last := m.connection, false, false
	connections.Lock()
	sub := h.change(func() {
		left := slices.DeleteFunc(h.members[m.Name], func(o *member) bool { return o == m })
		h.members[m.Name] = left
		if alone = len(left) == 0; alone {
			delete(h.members, m.Name)
		}
		last = len(h.members) == 0
	})
	if last {
		delete(connections.of, h.client)
	}
	connections.Unlock()
	switch {
	case last:
		h.end()
		<-h.done
	case alone && sub != nil:
		_ = sub.Unsubscribe(context.Background(), m.Name)
	}
}

func (h *connection) change(f func()) *redis.PubSub {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	return h.sub
}

func (h *connection) run(ctx context.Context) {
	for {
		err := h.receive(ctx)
		if ctx.Err() != nil {
			return
		}
		pause := time.Duration(0)
		h.change(func() {
			for m := range h.all() {
				m.Log.Debug("not subscribed", "channel", m.Name, "error", err)
				pause = m.Retry()
			}
		})
		if !wait.For(ctx, pause) {
			return
		}
	}
}

func (h *connection) receive(ctx context.Context) error {
	var names []string
	h.change(func() { names = slices.Collect(maps.Keys(h.members)) })
	sub := h.client.Subscribe(ctx, names...)
	subscribed := map[string]bool{}
	defer func() {
		h.change(func() { h.sub = nil })
		_ = sub.Close()
		for name := range subscribed {
			h.tell(name, event{kind: ended})
		}
	}()
	// A read ignores ctx; closing its connection ends it.
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })()
	for asked := false; ; {
		msg, err := sub.ReceiveTimeout(ctx, h.silence())
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
			if m.Kind != "subscribe" {
				delete(subscribed, m.Channel)
				wanted := false
				h.change(func() { wanted = len(h.members[m.Channel]) > 0 })
				if wanted { // another member left while this one joined
					_ = sub.Subscribe(ctx, m.Channel)
				}
				continue
			}
			if len(subscribed) == 0 { // connected; members that joined meanwhile are not on the list
				var more []string
				h.change(func() {
					h.sub = sub
					more = slices.DeleteFunc(slices.Collect(maps.Keys(h.members)),
						func(name string) bool { return slices.Contains(names, name) })
				})
				if len(more) > 0 {
					_ = sub.Subscribe(ctx, more...)
				}
			}
			subscribed[m.Channel] = true
			h.tell(m.Channel, event{kind: begun})
		case *redis.Message:
			h.tell(m.Channel, event{payload: m.Payload})
		}
	}
}

func (h *connection) silence() (d time.Duration) {
	h.change(func() {
		for m := range h.all() {
			if d == 0 || m.Silence < d {
				d = m.Silence
			}
		}
	})
	return d
}

func (h *connection) all() iter.Seq[*member] {
	return func(yield func(*member) bool) {
		for _, members := range h.members {
			for _, m := range members {
				if !yield(m) {
					return
				}
			}
		}
	}
}

// tell does not wait: a slow receiver must not delay the others.
func (h *connection) tell(name string, e event) {
	var members []*member
	h.change(func() { members = slices.Clone(h.members[name]) })
	for _, m := range members {
		select {
		case m.events <- e:
		default:
			m.Log.Debug("a message is lost: the receiver is slow", "channel", name)
		}
	}
}
