package registry

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/internal/keyless"
	"github.com/rollcall-redis/rollcall/internal/subscribe"
	"github.com/rollcall-redis/rollcall/internal/together"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

const (
	// toldPrefix starts a message about ids in dispute; see compare. Any other message is a list of
	// ids that another owner has taken over; see register.lua.
	toldPrefix = "/"
	// heardWord, in place of the time and the pairs, starts the ids with which the sender deals: it
	// does not hold them, or has to find out.
	heardWord  = "heard"
	askTimeout = time.Second
	// pingTimeout is how long a socket has to answer a Ping.
	pingTimeout = 5 * time.Second
	// pingCounts is how long an answered one counts: long enough for the message that reports it.
	pingCounts = 2 * time.Second
	// answerEvery is the shortest time between two answers about a claim. Owners whose clocks differ
	// would talk for ever.
	answerEvery = time.Second
	// gathered is how long messages wait for others to the same owner.
	gathered = time.Millisecond
)

// A dispute is about an id held here whose entry names another instance.
type dispute struct {
	owner  string
	ask    time.Time     // not before
	pause  time.Duration // before the question after that
	asked  time.Time     // the first question that it has not dealt with since
	until  int64         // when its heartbeat would have expired then
	silent bool          // it had no heartbeat; see outlived
}

// Instead of the time at which a heartbeat expires.
const (
	absent  = 0 // there is none
	forever = math.MaxInt64
)

func (t *table) isForeign(h *holding, owner string, now time.Time) {
	t.set(h, foreign)
	if h.dispute == nil || h.dispute.owner != owner {
		h.dispute = &dispute{owner: owner, pause: t.interval / 10}
	}
	if d := h.dispute; !now.Before(d.ask) {
		d.ask, d.pause = now.Add(d.pause), min(2*d.pause, t.interval)
		t.ask(h.claim, owner)
	}
}

func (t *table) ask(c *Claim, owner string) {
	t.asks[owner] = append(t.asks[owner], c)
	wait.Nudge(t.talk)
}

func (t *table) answer(c *Claim, owner string, now time.Time) {
	c.said = now
	t.ask(c, owner)
}

func (t *table) confirm(h *holding, owner string) {
	t.heard[owner] = append(t.heard[owner], word(h.id))
	wait.Nudge(t.talk)
}

// yield has the entry of an id that is not held taken out. The owner of a newer socket gets a
// message now, and another when that is done.
func (t *table) yield(h *holding, owner string) {
	if h.state != forgotten { // there is something to take out
		t.lost[h] = owner
	}
	t.confirm(h, owner)
}

func (t *table) out(h *holding) {
	if owner, lost := t.lost[h]; lost {
		delete(t.lost, h)
		t.confirm(h, owner)
	}
}

// compare compares another owner's handshakes with those here; see "Two sockets of one id" in the
// package documentation. The caller pings the claims that it returns, and then answers.
func (t *table) compare(other string, words []string, now time.Time) (newer []*Claim) {
	at, err := strconv.ParseInt(words[0], 10, 64)
	if err != nil || !t.clock.agrees(at, now) {
		return nil // it will ask again
	}
	for pair := range slices.Chunk(words[1:], 2) {
		theirs, err := strconv.ParseInt(pair[0], 10, 64)
		if err != nil || len(pair) < 2 {
			break // not a message of ours
		}
		answers := theirs > 0
		theirs = max(theirs, -theirs)
		id := unword(pair[1])
		h := t.holdings[id]
		if h == nil || h.claim == nil {
			t.yield(t.named(id, 0), other)
			continue
		}
		c, ours := h.claim, t.clock.handshake(h.claim)
		asked := h.dispute != nil && h.dispute.owner == other
		if asked {
			h.dispute.asked = time.Time{}
		}
		older := ours < theirs || ours == theirs && asked // if equal, the entry's owner keeps it
		switch {
		case older && answers:
			t.lose(c, MovedError{other}, now)
			t.yield(h, other)
		case c.pinging || now.Sub(c.said) < answerEvery:
			t.confirm(h, other)
		case older || c.answers(now):
			t.answer(c, other, now)
		default:
			c.pinging = true
			newer = append(newer, c)
			t.confirm(h, other)
		}
	}
	return newer
}

// answers reports whether a socket just answered a ping, or cannot be asked.
func (c *Claim) answers(now time.Time) bool {
	return c.sock.Ping == nil || wait.Age(c.verified, now) <= pingCounts
}

// ping asks the newer socket for an answer, before the older one is closed for it. A Ping that does
// not return, such as a write to a peer that is gone, counts as failed.
func (r *Registry) ping(ctx context.Context, c *Claim, other string) {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	answered := make(chan error, 1)
	go func() { answered <- c.sock.Ping(ctx) }()
	var err error
	select {
	case err = <-answered:
	case <-ctx.Done():
		err = ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now, h := time.Now(), c.h
	c.pinging = false
	switch {
	case h.claim != c:
	case err != nil:
		r.table.lose(c, fmt.Errorf("%w: %w", ErrNoAnswer, err), now)
		r.table.yield(h, other)
	default:
		c.verified = now
		r.table.answer(c, other, now)
	}
}

// noticed has ids checked that another owner has taken over, or that it deals with: they may be
// out.
func (t *table) noticed(owner string, words []string) {
	for _, w := range words {
		h := t.holdings[unword(w)]
		switch {
		case h == nil || h.claim == nil:
		case h.state == foreign && h.dispute.owner == owner:
			h.dispute.asked = time.Time{}
			t.enqueue(h, false)
		default:
			t.checkStanding(h)
		}
	}
}

// wasAsked notes that another owner was sent a question, and when its heartbeat expires. If it has
// dealt with none for two intervals, and has beaten meanwhile, it is a plain writer, which never
// will: it keeps the id. A live client connects again, which overwrites.
func (t *table) wasAsked(owner string, claims []*Claim, until int64, now time.Time) {
	for _, c := range claims {
		d := c.h.dispute
		if c.h.claim != c || d == nil || d.owner != owner {
			continue
		}
		d.silent = until == absent && validInstance(owner)
		beaten := until == forever || until-d.until > t.interval.Milliseconds()/2
		switch {
		case until == absent:
			d.asked = time.Time{}
		case d.asked.IsZero():
			d.asked, d.until = now, until
		case beaten && now.Sub(d.asked) >= 2*t.interval:
			t.lose(c, ErrTaken, now)
		}
	}
}

// listen receives messages of other owners. They only save time: questions are repeated, and a
// later check makes up for the others.
func (r *Registry) listen(ctx context.Context) error {
	channel := keyless.Channel(r.cfg.Client, r.keys.Heartbeat(r.id))
	subscribe.Channel{
		Client: r.cfg.Control, Name: channel, Silence: r.cfg.HeartbeatTTL, Log: r.log,
		Retry:   func() time.Duration { return r.cfg.HeartbeatInterval / 10 },
		Message: func(m string) { r.told(ctx, strings.Split(m, " ")) },
		Subscribed: func(is bool) {
			if is { // the first beat's message may have come too early
				call, cancel := context.WithTimeout(ctx, deafAfter)
				defer cancel()
				_ = r.cfg.Control.Publish(call, channel, toldPrefix).Err() // the next beat's message follows
			}
		},
	}.Run(ctx)
	return nil
}

func (r *Registry) told(ctx context.Context, words []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	other, disputed := strings.CutPrefix(words[0], toldPrefix)
	switch {
	case !disputed:
		r.table.noticed("", words)
	case len(words) < 2: // a beat of this owner
		r.heard = time.Now()
		r.recovered("listen")
	case words[1] == heardWord:
		r.table.noticed(other, words[2:])
	default:
		for _, c := range r.table.compare(other, words[1:], time.Now()) {
			go r.ping(ctx, c, other)
		}
	}
}

// talk asks other owners about ids in dispute and answers their questions. A question that could
// not be sent is repeated.
func (r *Registry) talk(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.table.talk:
			wait.For(ctx, gathered) // many sockets answer their pings at one instant
		}
		r.mu.Lock()
		asks, heard := r.table.asks, r.table.heard
		r.table.asks, r.table.heard = map[string][]*Claim{}, map[string][]string{}
		r.mu.Unlock()
		if err := r.converse(ctx, asks, heard); err != nil {
			r.log.Debug("could not message other owners", "error", err)
		}
	}
}

// converse sends the queued messages until the first failure: all channels are on one server.
func (r *Registry) converse(ctx context.Context, asks map[string][]*Claim, heard map[string][]string) error {
	for owner, ids := range heard {
		for ids := range slices.Chunk(ids, batchSize) {
			if _, err := r.message(ctx, owner, heardWord+" "+strings.Join(ids, " ")); err != nil {
				return err
			}
		}
	}
	for owner, claims := range asks {
		r.log.Debug("two sockets of one id", "owner", owner, "devices", len(claims))
		for claims := range slices.Chunk(claims, batchSize) {
			left, err := r.message(ctx, owner, r.handshakes(claims))
			if err != nil {
				return err
			}
			r.mu.Lock()
			now, until := time.Now(), int64(absent)
			switch {
			case left > 0:
				until = r.table.clock.when(now.Add(left))
			case left == -1: // it never expires
				until = forever
			}
			r.table.wasAsked(owner, claims, until, now)
			r.mu.Unlock()
		}
	}
	return nil
}

func (r *Registry) handshakes(claims []*Claim) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	msg := fmt.Append(make([]byte, 0, 32*(len(claims)+1)), r.table.clock.when(now))
	for _, c := range claims {
		at := r.table.clock.handshake(c)
		if !c.answers(now) {
			at = -at
		}
		if c.h.claim == c {
			msg = fmt.Appendf(msg, " %d %s", at, word(c.h.id))
		}
	}
	return string(msg)
}

// message publishes to another owner, and returns the PTTL of its heartbeat.
func (r *Registry) message(ctx context.Context, owner, words string) (left time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	key := r.keys.Heartbeat(owner)
	at, err := keyless.At(ctx, r.cfg.Client, key)
	if err != nil {
		return 0, err
	}
	pipe := at.Pipeline()
	sent := pipe.Publish(ctx, keyless.Channel(r.cfg.Client, key), toldPrefix+r.id+" "+words)
	beats := pipe.PTTL(ctx, key)
	if err := together.Exec(ctx, pipe); err != nil {
		return 0, err
	}
	return beats.Val(), errors.Join(sent.Err(), beats.Err())
}

// In messages between owners, ids are words separated by single spaces. An id may be any string, so
// it is escaped as in a URL: "%" and two hex digits for a space, a control character, a "%", and a
// leading "/", which marks messages about disputes; "%" alone is the empty id. register.lua escapes
// in the same way.

func word(id string) string {
	if id == "" {
		return "%"
	}
	escaped := func(i int) bool {
		c := id[i]
		return c <= ' ' || c == 0x7f || c == '%' || c == '/' && i == 0
	}
	var b strings.Builder
	for i := range len(id) {
		if escaped(i) {
			fmt.Fprintf(&b, "%%%02X", id[i])
		} else {
			b.WriteByte(id[i])
		}
	}
	return b.String()
}

// unword decodes a word. Others, which no owner writes, it returns as they are.
func unword(word string) string {
	if word == "%" {
		return ""
	}
	if id, err := url.PathUnescape(word); err == nil {
		return id
	}
	return word
}

// If the entry of a held id names a dead instance, it is overwritten whoever is newer. heal.lua
// decides by its record. Its attempts also listen: without janitors, an owner may take over, too.

// outlived reports whether to overwrite the entry of a held id if the instance that it names is
// dead. One batch per retry is enough to listen and find out.
func (t *table) outlived(h *holding, now time.Time) bool {
	return h.dispute != nil && h.dispute.silent && !now.Before(t.outliveAt)
}

func (t *table) notYet(ops []op, now time.Time) {
	t.outliveAt = now.Add(t.interval / 20)
	for _, o := range ops {
		if o.h.claim == o.claim && o.h.state == foreign {
			t.enqueue(o.h, false)
		}
	}
}

// heartbeats returns those of the instances that may be dead.
func (r *Registry) heartbeats(ops []op) (keys []string) {
	for _, o := range ops {
		if key := r.keys.Heartbeat(o.dead); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}
