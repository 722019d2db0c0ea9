package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"
	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall"
)

const (
	pingEvery = 20 * time.Second
	pongIn    = 5 * time.Second
	idBytes   = 512 // of an id; Rollcall takes 1024
	textsWait = 100 // texts of one socket that wait, in each direction
)

type chat struct {
	log     *slog.Logger
	rdb     *redis.Client
	replica *rollcall.Replica

	lost  chan struct{} // one slot: put everything back
	every time.Duration // or after this time

	mu      sync.Mutex
	sockets map[string]*socket // by id
}

type socket struct {
	conn  *websocket.Conn
	claim *rollcall.Claim
	texts chan string // to the device
}

// message is what one replica sends another by pub/sub.
type message struct{ To, Text string }

func (c *chat) connect(w http.ResponseWriter, r *http.Request) {
	user, device := r.FormValue("user"), r.FormValue("device")
	id := user + "|" + device
	if user == "" || device == "" || strings.Contains(user, "|") || len(id) > idBytes || !utf8.ValidString(id) {
		http.Error(w, "user and device are needed: UTF-8, a few hundred bytes; a user's name has no |",
			http.StatusBadRequest)
		return
	}
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	ctx := r.Context()
	s := &socket{conn: conn, texts: make(chan string, textsWait)}
	claim := c.arrived(id, s)
	defer c.gone(id, s)
	defer claim.Release()
	go s.watch(ctx)
	go s.write(ctx)
	go func() { // the socket is served meanwhile; the rule may remove what has no entry
		if err := claim.Wait(ctx); err != nil {
			return // the socket has ended
		}
		if err := c.rdb.ZAdd(ctx, online, redis.Z{Member: id}).Err(); err != nil {
			c.nudge() // tries again, with everything else
		}
	}()
	texts := make(chan string, textsWait)
	go c.sendAll(ctx, user, texts)
	for { // reads whatever Redis does: nothing else notices a pong
		_, text, err := conn.Read(ctx)
		if err != nil {
			return
		}
		select {
		case texts <- string(text):
		default:
			c.log.Warn("a text is dropped: Redis does not keep up", "id", id)
		}
	}
}

// sendAll sends the texts of one socket until it ends.
func (c *chat) sendAll(ctx context.Context, user string, texts <-chan string) {
	for {
		select {
		case <-ctx.Done():
			return
		case text := <-texts:
			if to, text, ok := strings.Cut(text, " "); ok {
				c.send(ctx, to, user+": "+text)
			}
		}
	}
}

// arrived files a socket and registers it, in one step: of two sockets of one id that come at once,
// the one that is filed has the newest claim. It is filed before its id is in the sorted set, so
// that a loss right after that puts it back.
func (c *chat) arrived(id string, s *socket) *rollcall.Claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sockets[id] = s
	closed := func() error { return c.closed(s) }
	s.claim = c.replica.Register(id, rollcall.Socket{Close: closed, Ping: s.conn.Ping}) // never fails, never blocks
	return s.claim
}

// closed closes a socket for Rollcall: its device has a newer one, or this replica stops.
func (c *chat) closed(s *socket) error {
	c.mu.Lock() // until Register has returned
	claim := s.claim
	c.mu.Unlock()
	var moved rollcall.MovedError
	if errors.As(claim.Err(), &moved) {
		return s.conn.Close(4001, "this device has connected again") // do not come back
	}
	return s.conn.Close(websocket.StatusGoingAway, "connect again")
}

// gone forgets a socket. It leaves the sorted set alone: the device may be at another replica by
// now. The rule takes out what is nowhere, and readers ask where each id is anyway.
func (c *chat) gone(id string, s *socket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sockets[id] == s {
		delete(c.sockets, id)
	}
}

// watch pings the other end, and closes the socket when it is dead. It ends with the socket's
// context, or at the first ping after the socket closed.
func (s *socket) watch(ctx context.Context) {
	defer s.conn.CloseNow()
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		pong, cancel := context.WithTimeout(ctx, pongIn)
		err := s.conn.Ping(pong) // writes, and waits for the pong of this very ping
		cancel()
		if err != nil {
			return
		}
	}
}

func (c *chat) nudge() { nudge(c.lost) }

func nudge(slot chan struct{}) {
	select {
	case slot <- struct{}{}:
	default:
	}
}

// keep puts the ids of this replica's sockets back into the sorted set when they may be lost, and
// now and then in case the set was lost alone.
func (c *chat) keep(ctx context.Context) error {
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.lost:
		case <-tick.C:
		}
		if err := c.putBack(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("cannot put back who is online; trying again", "error", err)
			time.AfterFunc(time.Second, c.nudge)
		}
	}
}

func (c *chat) putBack(ctx context.Context) error {
	c.mu.Lock()
	ids := slices.Collect(maps.Keys(c.sockets))
	c.mu.Unlock()
	for some := range slices.Chunk(ids, 1000) {
		members := make([]redis.Z, len(some))
		for i, id := range some {
			members[i] = redis.Z{Member: id}
		}
		if err := c.rdb.ZAdd(ctx, online, members...).Err(); err != nil {
			return err
		}
	}
	return nil
}

// devices returns the ids of a user's sockets, and the replica of each.
func (c *chat) devices(ctx context.Context, user string) (pods map[string]string, _ error) {
	// rollcall: find
	ids, err := c.rdb.ZRangeArgs(ctx, redis.ZRangeArgs{
		Key: online, ByLex: true, Start: "[" + user + "|", Stop: "(" + user + "}", // '}' comes right after '|'
	}).Result()
	if err != nil {
		return nil, err
	}
	owners, err := c.replica.LookupMany(ctx, ids) // lacks those that are nowhere
	pods = make(map[string]string, len(owners))
	for id, o := range owners {
		if o.Live {
			pods[id] = o.Instance
		}
	}
	// rollcall: end
	return pods, err
}

func (c *chat) where(w http.ResponseWriter, r *http.Request) {
	pods, err := c.devices(r.Context(), r.FormValue("user"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(pods)
}

// send passes a text to each device of a user. Pub/sub may lose it: a real service keeps messages
// elsewhere, and publishes only that there are some.
func (c *chat) send(ctx context.Context, to, text string) {
	pods, err := c.devices(ctx, to)
	for id, pod := range pods {
		body, _ := json.Marshal(message{id, text}) // strings always marshal
		err = cmp.Or(err, c.rdb.Publish(ctx, inbox(pod), body).Err())
	}
	if err != nil {
		c.log.Warn("cannot send", "to", to, "error", err)
	}
}

func inbox(instance string) string { return "chat:inbox:" + instance }

// receive delivers what other replicas send to sockets of this one.
func (c *chat) receive(ctx context.Context) error {
	sub := c.rdb.Subscribe(ctx, inbox(c.replica.Instance()))
	defer sub.Close()
	for {
		select {
		case <-ctx.Done():
			return nil
		case got := <-sub.Channel():
			var m message
			if got != nil && json.Unmarshal([]byte(got.Payload), &m) == nil {
				c.deliver(m)
			}
		}
	}
}

func (c *chat) deliver(m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.sockets[m.To]; s != nil {
		select {
		case s.texts <- m.Text:
		default:
			c.log.Warn("a text is dropped: its device does not keep up", "id", m.To)
		}
	}
}

// write passes texts to the device, one at a time, so that a slow device delays no other.
func (s *socket) write(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case text := <-s.texts:
			call, cancel := context.WithTimeout(ctx, pongIn)
			_ = s.conn.Write(call, websocket.MessageText, []byte(text)) // closes a dead socket
			cancel()
		}
	}
}
