package subscribe

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

// queued is how many events wait for a slow receiver. More are lost, as Pub/Sub loses messages.
const queued = 256

// kind is what happened to a channel.
type kind uint8

const (
	message kind = iota
	begun        // subscribed
	ended        // not any more
)

type event struct {
	kind    kind
	payload string
}

// connections are the subscribed ones, by client.
var connections = struct {
	sync.Mutex
	of map[redis.UniversalClient]*connection
}{of: map[redis.UniversalClient]*connection{}}

// connection is what all channels of one client share. It lives while one of them runs. No lock is
// held while the server is spoken to.
type connection struct {
	client redis.UniversalClient
	end    context.CancelFunc
	done   chan struct{} // closed when it has ended

	mu      sync.Mutex
	members map[string]*member
	sub     *redis.PubSub // nil: not connected
}

// member is one channel of a connection.
type member struct {
	Channel
	connection *connection
	events     chan event
}

// join adds a channel to its client's connection, or makes one.
func join(c Channel) *member {
	m := &member{Channel: c, events: make(chan event, queued)}
	connections.Lock()
	h := connections.of[c.Client]
	if h == nil {
		ctx, end := context.WithCancel(context.Background())
		h = &connection{client: c.Client, end: end, done: make(chan struct{}), members: map[string]*member{}}
		connections.of[c.Client] = h
		go func() {
			defer close(h.done)
			h.run(ctx)
		}()
	}
	m.connection = h
	sub := h.change(func() { h.members[c.Name] = m })
	connections.Unlock()
	if sub != nil { // an error ends the connection: its reader sees it too
		_ = sub.Subscribe(context.Background(), c.Name)
	}
	return m
}

// leave takes the channel off its connection. The last one ends it.
func (m *member) leave() {
	h, last := m.connection, false
	connections.Lock()
	sub := h.change(func() {
		if h.members[m.Name] == m {
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
	case sub != nil:
		_ = sub.Unsubscribe(context.Background(), m.Name)
	}
}

// change changes the members, and returns what is connected then; nil: nothing.
func (h *connection) change(f func()) *redis.PubSub {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	return h.sub
}

// run subscribes again and again until ctx ends.
func (h *connection) run(ctx context.Context) {
	for {
		err := h.receive(ctx)
		if ctx.Err() != nil {
			return
		}
		pause := time.Duration(0)
		h.change(func() {
			for _, m := range h.members {
				m.Log.Debug("not subscribed", "channel", m.Name, "error", err)
				pause = m.Retry()
			}
		})
		if !wait.For(ctx, pause) {
			return
		}
	}
}

// receive receives messages of all channels until the connection fails or ctx ends.
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
	// A read under way does not heed ctx; closing its connection ends it.
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
				continue
			}
			if len(subscribed) == 0 { // connected; who came meanwhile is not on the list
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

// silence is the shortest of all channels.
func (h *connection) silence() (d time.Duration) {
	h.change(func() {
		for _, m := range h.members {
			if d == 0 || m.Silence < d {
				d = m.Silence
			}
		}
	})
	return d
}

// tell hands an event over. It does not wait: one slow receiver must not keep the others waiting.
func (h *connection) tell(name string, e event) {
	var m *member
	h.change(func() { m = h.members[name] })
	if m == nil {
		return
	}
	select {
	case m.events <- e:
	default:
		m.Log.Debug("a message is lost: the receiver is slow", "channel", name)
	}
}
