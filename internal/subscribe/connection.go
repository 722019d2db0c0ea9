package subscribe

import (
	"context"
	"errors"
	"iter"
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
	members map[string][]*member // by channel; two of one process may want the same
	sub     *redis.PubSub        // nil: not connected
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
	h, known := connections.of[c.Client]
	if !known {
		h = &connection{client: c.Client, done: make(chan struct{}), members: map[string][]*member{}}
		connections.of[c.Client] = h
	}
	m.connection = h
	sub := h.change(func() { h.members[c.Name] = append(h.members[c.Name], m) })
	if !known { // now that it has a channel
		var ctx context.Context
		ctx, h.end = context.WithCancel(context.Background())
		go func() {
			defer close(h.done)
			h.run(ctx)
		}()
	}
	connections.Unlock()
	// Redis confirms it again where another has the channel already: so m learns of it. An error ends
	// the connection: its reader sees it too.
	if sub != nil {
		_ = sub.Subscribe(context.Background(), c.Name)
	}
	return m
}

// leave takes the channel off its connection. The last one ends it.
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
				wanted := false
				h.change(func() { wanted = len(h.members[m.Channel]) > 0 })
				if wanted { // one left while another came
					_ = sub.Subscribe(ctx, m.Channel)
				}
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
		for m := range h.all() {
			if d == 0 || m.Silence < d {
				d = m.Silence
			}
		}
	})
	return d
}

// all are the members; to be called in change.
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

// tell hands an event over. It does not wait: one slow receiver must not keep the others waiting.
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
