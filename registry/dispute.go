package registry

import (
	"context"
	"fmt"
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
	// tellAgain is the shortest time between two calls of Config.OnDisplaced for a claim whose
	// id was not heard meanwhile.
	tellAgain = 5 * time.Minute
	// toldPrefix starts a message about ids in dispute; see compare. Any other message is a list of
	// ids that another owner has taken over; see owner.lua.
	toldPrefix = "/"
	// heardWord, in place of the pairs, starts the ids that the sender was asked about and deals
	// with. Older versions ignore such a message.
	heardWord  = "heard"
	askTimeout = time.Second
)

// A dispute is about an id held here whose entry names another instance.
type dispute struct {
	owner   string
	asked   time.Time
	unheard bool // alive, but may not have received the last question
	silent  bool // it had no heartbeat then; see outlived
}

type displacement struct{ id, owner string }

// isForeign: only proof takes the entry back.
func (t *table) isForeign(h *holding, owner string, now time.Time) {
	if h.dispute == nil || h.dispute.owner != owner {
		t.set(h, contested)
		h.dispute = &dispute{owner: owner}
	}
	if h.state == contested { // otherwise keep the proof that has arrived meanwhile
		t.set(h, foreign)
	}
	if now.Sub(h.dispute.asked) >= t.interval {
		h.dispute.asked = now
		t.asks[owner] = append(t.asks[owner], h.claim)
		wait.Nudge(t.talk)
	}
}

// proof reports whether there is proof against the other instance's claim, and drops proof whose
// last frame is more than a second old.
func (t *table) proof(h *holding, now time.Time) bool {
	if h.state != proven {
		return false
	}
	if wait.Age(h.claim.heard, now) < fresh {
		return true
	}
	t.set(h, foreign)
	return false
}

func (t *table) displace(h *holding, owner string, now time.Time) {
	if c := h.claim; now.Sub(c.told) >= tellAgain || c.heard.After(c.told) {
		c.told = now
		t.displaced = append(t.displaced, displacement{h.id, owner})
	}
}

// compare compares another owner's message with this owner's records; see "Two owners of one id" in
// the package documentation. The caller sends the ids heard later here, and confirms those in
// heard.
func (t *table) compare(other string, pairs []string, now time.Time) (later []*Claim, heard []string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		theirs, err := strconv.ParseInt(pairs[i], 10, 64)
		if err != nil {
			break // not a message of ours
		}
		id := unword(pairs[i+1])
		h := t.holdings[id]
		if h == nil || h.claim == nil {
			t.named(id, 0)
			heard = append(heard, pairs[i+1])
			continue
		}
		ours := wait.Age(h.claim.heard, now).Milliseconds()
		asked := h.dispute != nil && h.dispute.owner == other
		if asked {
			h.dispute.unheard = false
		}
		switch {
		case ours > theirs || ours == theirs && asked: // if equal, the entry's owner keeps it
			t.displace(h, other, now)
			if !asked {
				heard = append(heard, pairs[i+1])
			}
		case !asked:
			later = append(later, h.claim)
		}
	}
	return later, heard
}

func (t *table) wasHeard(owner string, ids []string) {
	for _, id := range ids {
		if h := t.holdings[unword(id)]; h != nil && h.dispute != nil && h.dispute.owner == owner {
			h.dispute.unheard = false
		}
	}
}

// answered notes whether another owner, which was sent a question, certainly received it, and
// whether it is alive. If it is, but did not receive two in a row, have the socket here checked.
func (t *table) answered(owner string, claims []*Claim, heard, lives bool, now time.Time) {
	for _, c := range claims {
		d := c.h.dispute
		if c.h.claim != c || d == nil || d.owner != owner {
			continue
		}
		if lives && !heard && d.unheard {
			t.displace(c.h, owner, now)
		}
		d.unheard, d.silent = lives && !heard, !lives && validInstance(owner)
	}
}

// listen receives messages of other owners. They only save time: a later check makes up for a lost
// one.
func (r *Registry) listen(ctx context.Context) error {
	subscribe.Channel{
		Client: r.cfg.Control, Name: keyless.Channel(r.cfg.Client, r.keys.Heartbeat(r.id)), Silence: r.cfg.HeartbeatTTL, Log: r.log,
		Retry:   func() time.Duration { return r.cfg.HeartbeatInterval / 10 },
		Message: func(m string) { r.told(ctx, strings.Split(m, " ")) },
	}.Run(ctx)
	return nil
}

func (r *Registry) told(ctx context.Context, words []string) {
	r.mu.Lock()
	other, disputed := strings.CutPrefix(words[0], toldPrefix)
	if !disputed {
		for _, w := range words {
			if h := r.table.holdings[unword(w)]; h != nil {
				r.table.checkStanding(h)
			}
		}
		r.mu.Unlock()
		return
	}
	defer r.tellDisplaced()
	defer r.mu.Unlock()
	if len(words) > 1 && words[1] == heardWord {
		r.table.wasHeard(other, words[2:])
		return
	}
	later, heard := r.table.compare(other, words[1:], time.Now())
	if len(later) > 0 {
		r.table.asks[other] = append(r.table.asks[other], later...)
	}
	if len(heard) > 0 {
		r.table.heard[other] = append(r.table.heard[other], heard...)
	}
	wait.Nudge(r.table.talk)
}

// talk asks other owners about ids in dispute and answers their questions. A question that could
// not be sent is repeated after an interval.
func (r *Registry) talk(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.table.talk:
		}
		r.mu.Lock()
		asks, heard := r.table.asks, r.table.heard
		r.table.asks, r.table.heard = map[string][]*Claim{}, map[string][]string{}
		r.mu.Unlock()
		if err := r.converse(ctx, asks, heard); err != nil {
			r.log.Debug("could not message other owners", "error", err)
		}
		r.tellDisplaced()
	}
}

// converse sends the queued messages until the first failure: all channels are on one server.
func (r *Registry) converse(ctx context.Context, asks map[string][]*Claim, heard map[string][]string) error {
	for owner, ids := range heard {
		for ids := range slices.Chunk(ids, batchSize) {
			msg := fmt.Appendf(nil, "%s%s %s %s", toldPrefix, r.id, heardWord, strings.Join(ids, " "))
			if _, _, err := r.message(ctx, owner, msg); err != nil {
				return err
			}
		}
	}
	for owner, claims := range asks {
		r.log.Debug("entries name another instance", "owner", owner, "devices", len(claims))
		for claims := range slices.Chunk(claims, batchSize) {
			heard, lives, err := r.message(ctx, owner, r.ages(claims))
			if err != nil {
				return err
			}
			r.mu.Lock()
			r.table.answered(owner, claims, heard, lives, time.Now())
			r.mu.Unlock()
		}
	}
	return nil
}

func (r *Registry) ages(claims []*Claim) []byte {
	msg := append(make([]byte, 0, 32*(len(claims)+1)), toldPrefix+r.id...)
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, c := range claims {
		if c.h.claim == c {
			msg = fmt.Appendf(msg, " %d %s", wait.Age(c.heard, now).Milliseconds(), word(c.h.id))
		}
	}
	return msg
}

// message publishes to another owner, and returns whether that certainly listens, and whether it
// has a heartbeat. On a Cluster, PUBLISH counts the listeners of one node only.
func (r *Registry) message(ctx context.Context, owner string, msg []byte) (heard, lives bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	key := r.keys.Heartbeat(owner)
	at, err := keyless.At(ctx, r.cfg.Client, key)
	if err != nil {
		return false, false, err
	}
	pipe := at.Pipeline()
	listeners, there := pipe.Publish(ctx, keyless.Channel(r.cfg.Client, key), msg), pipe.Exists(ctx, key)
	if err := together.Exec(ctx, pipe); err != nil {
		return false, false, err
	}
	if err := listeners.Err(); err != nil && !together.Answered(err) { // not allowed, or renamed
		return false, false, err
	}
	return listeners.Val() > 0, there.Val() > 0, there.Err()
}

func (r *Registry) tellDisplaced() {
	r.mu.Lock()
	displaced := r.table.displaced
	r.table.displaced = nil
	r.mu.Unlock()
	if r.cfg.OnDisplaced != nil {
		for _, d := range displaced {
			r.cfg.OnDisplaced(d.id, d.owner)
		}
	}
}

// In messages between owners, ids are words separated by single spaces. An id may be any
// string, so it is escaped as in a URL: "%" and two hex digits for a space, a control character, a
// "%", and a leading "/", which marks messages about disputes; "%" alone is the empty id. owner.lua
// escapes in the same way.

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

// If the entry of a held id names a dead instance, it is overwritten without evidence. heal.lua
// decides by its record. Its attempts also listen: without janitors, an owner may take over, too.

// outlived reports whether to overwrite the entry of a held id if the instance that it names is
// dead. One batch per retry is enough to listen and find out.
func (t *table) outlived(h *holding, now time.Time) bool {
	return h.dispute != nil && h.dispute.silent && h.state != contested && !now.Before(t.outliveAt)
}

func (o op) outliving() bool { return o.h.dispute != nil && o.h.dispute.owner == o.dead }

func (t *table) notYet(ops []op, now time.Time) {
	t.outliveAt = now.Add(t.interval / 20)
	for _, o := range ops {
		if o.h.claim == o.claim && o.h.state.disputed() {
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
