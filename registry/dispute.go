package registry

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/internal/keyless"
	"github.com/rollcall-redis/rollcall/internal/subscribe"
	"github.com/rollcall-redis/rollcall/internal/together"
)

const (
	// tellAgain is the least time between two calls of Config.OnDisplaced for one claim whose
	// device was not heard meanwhile.
	tellAgain = 5 * time.Minute
	// toldPrefix begins a message of another owner about devices in dispute: its id follows, and
	// pairs (see compare). No word for an IMEI begins so. Any other message is a list of IMEIs that
	// another owner has taken over: see tell in owner.lua.
	toldPrefix = "/"
	// heardWord, in place of the pairs, begins a list of IMEIs: this owner was asked about them and
	// deals with them. Older versions ignore such a message, because the word is not a number.
	heardWord = "heard"
	// askTimeout bounds one message to another owner.
	askTimeout = time.Second
)

// A dispute is about a device that is held here while its entry names another instance. One of the
// two sockets is half open, most likely, and a parked device does not say which.
type dispute struct {
	owner   string    // the other instance
	asked   time.Time // when it was last asked
	waits   bool      // to be asked
	unheard bool      // it lives, and nothing shows that it heard the last question
	silent  bool      // it had no heartbeat then: see outlived.go
}

// A displacement is a device held here that another instance heard later.
type displacement struct{ imei, owner string }

// isForeign notes that the entry of a held device names another instance: only proof takes it back.
func (t *table) isForeign(d *device, owner string, now time.Time) {
	if d.dispute == nil || d.dispute.owner != owner {
		t.set(d, contested)
		d.dispute = &dispute{owner: owner}
	}
	if d.state == contested { // else what proof has come meanwhile stands
		t.set(d, foreign)
	}
	if now.Sub(d.dispute.asked) >= t.interval && !d.dispute.waits {
		d.dispute.asked, d.dispute.waits = now, true
		t.asks[owner] = append(t.asks[owner], d.claim)
		nudge(t.talk)
	}
}

// takeAsks returns what other instances are to be asked, once.
func (t *table) takeAsks() map[string][]*Claim {
	asks := t.asks
	t.asks = map[string][]*Claim{}
	for _, claims := range asks {
		for _, c := range claims {
			if c.d.dispute != nil {
				c.d.dispute.waits = false
			}
		}
	}
	return asks
}

// proof reports whether there is proof against the other instance's claim, not older than a second:
// the last frame. Older proof no longer counts.
func (t *table) proof(d *device, now time.Time) bool {
	if d.state != proven {
		return false
	}
	if age(d.claim.heard, now) < fresh {
		return true
	}
	t.set(d, foreign)
	return false
}

// displace has Config.OnDisplaced told of a held device.
func (t *table) displace(d *device, owner string, now time.Time) {
	if c := d.claim; now.Sub(c.told) >= tellAgain || c.heard.After(c.told) {
		c.told = now
		t.displaced = append(t.displaced, displacement{d.imei, owner})
	}
}

// compare compares what another owner says with what is known here, in pairs: how many ms ago it
// heard a device, and which. The owner that heard a device later has the open socket, most likely.
//
//   - Not held here: what may name this instance is handed back.
//   - Heard earlier here: the socket here is to be checked.
//   - Heard later here: the other owner is to be told so, in the same words (later). But an owner
//     that has asked about this device does not answer, so that two never talk without end.
//
// The caller confirms the first two to the other owner, by the names in its message: nothing else
// proves that the message arrived.
func (t *table) compare(other string, pairs []string, now time.Time) (later []*Claim, heard []string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		theirs, err := strconv.ParseInt(pairs[i], 10, 64)
		if err != nil {
			break // not a message of ours
		}
		imei := unword(pairs[i+1])
		d := t.devices[imei]
		if d == nil || d.claim == nil {
			t.named(imei, 0)
			heard = append(heard, pairs[i+1])
			continue
		}
		ours := age(d.claim.heard, now).Milliseconds()
		asked := d.dispute != nil && d.dispute.owner == other
		if asked {
			d.dispute.unheard = false
		}
		switch {
		case ours > theirs || ours == theirs && asked: // of equals the one that the entry names has it
			t.displace(d, other, now)
			if !asked {
				heard = append(heard, pairs[i+1])
			}
		case !asked:
			later = append(later, d.claim)
		}
	}
	return later, heard
}

// wasHeard notes that another owner has heard what it was asked.
func (t *table) wasHeard(owner string, imeis []string) {
	for _, imei := range imeis {
		if d := t.devices[unword(imei)]; d != nil && d.dispute != nil && d.dispute.owner == owner {
			d.dispute.unheard = false
		}
	}
}

// answered notes whether another owner is known to have heard what it was just asked. One of which
// that was not known twice in a row, though it lives, never will: then the socket here is the one
// that can be checked.
func (t *table) answered(owner string, claims []*Claim, heard bool, now time.Time) {
	for _, c := range claims {
		if d := c.d; d.claim == c && d.dispute != nil && d.dispute.owner == owner {
			if !heard && d.dispute.unheard {
				t.displace(d, owner, now)
			}
			d.dispute.unheard = !heard
		}
	}
}

// listen receives what other owners say of devices. It saves time: a message that is lost is made
// up for by a later check.
func (r *Registry) listen(ctx context.Context) error {
	subscribe.Channel{
		Client: r.cfg.Control, Name: r.keys.Heartbeat(r.id), Silence: r.cfg.HeartbeatTTL, Log: r.log,
		Retry:   func() time.Duration { return r.cfg.HeartbeatInterval / 10 },
		Message: func(m string) { r.told(ctx, strings.Split(m, " ")) },
	}.Run(ctx)
	return nil
}

// told has devices checked that another owner has taken over, or compares what it says of them.
func (r *Registry) told(ctx context.Context, words []string) {
	r.mu.Lock()
	other, disputed := strings.CutPrefix(words[0], toldPrefix)
	if !disputed {
		for _, w := range words {
			if d := r.table.devices[unword(w)]; d != nil {
				r.table.checkStanding(d)
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
	nudge(r.table.talk)
}

// talk asks other owners about devices in dispute (which of us has heard them later?) and answers
// them, until ctx ends. Writes do not wait for it. The other owner checks whether its own socket is
// half open (see compare). What could not be asked is asked again in an interval.
func (r *Registry) talk(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.table.talk:
		}
		r.mu.Lock()
		asks, heard := r.table.takeAsks(), r.table.heard
		r.table.heard = map[string][]string{}
		r.mu.Unlock()
		if err := r.say(ctx, asks, heard); err != nil {
			r.log.Debug("other owners could not be asked or answered", "error", err)
		}
		r.tellDisplaced()
	}
}

// say sends what waits for other owners. The first failure ends it: all channels of one registry
// are at one server.
func (r *Registry) say(ctx context.Context, asks map[string][]*Claim, heard map[string][]string) error {
	for owner, imeis := range heard {
		for imeis := range slices.Chunk(imeis, batchSize) {
			msg := fmt.Appendf(nil, "%s%s %s %s", toldPrefix, r.id, heardWord, strings.Join(imeis, " "))
			if _, _, err := r.tell(ctx, owner, msg); err != nil {
				return err
			}
		}
	}
	for owner, claims := range asks {
		r.log.Debug("entries name another instance", "owner", owner, "devices", len(claims))
		for claims := range slices.Chunk(claims, batchSize) {
			heard, lives, err := r.tell(ctx, owner, r.ages(claims))
			if err != nil {
				return err
			}
			r.mu.Lock()
			r.table.answered(owner, claims, heard || !lives, time.Now())
			r.table.silent(owner, claims, !lives && canBeInstance(owner))
			r.mu.Unlock()
		}
	}
	return nil
}

// ages is a message about how long ago devices were heard here.
func (r *Registry) ages(claims []*Claim) []byte {
	msg := append(make([]byte, 0, 32*(len(claims)+1)), toldPrefix+r.id...)
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, c := range claims {
		if c.d.claim == c {
			msg = fmt.Appendf(msg, " %d %s", age(c.heard, now).Milliseconds(), word(c.d.imei))
		}
	}
	return msg
}

// tell publishes a message for another owner. It returns whether that owner certainly listens, and
// whether it has a heartbeat. An owner that is not heard may have received it all the same: PUBLISH
// counts the listeners at one node of a Cluster.
func (r *Registry) tell(ctx context.Context, owner string, msg []byte) (heard, lives bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	channel := r.keys.Heartbeat(owner)
	at, err := keyless.At(ctx, r.cfg.Client, channel)
	if err != nil {
		return false, false, err
	}
	pipe := at.Pipeline()
	listeners, there := pipe.Publish(ctx, channel, msg), pipe.Exists(ctx, channel)
	if err := together.Exec(ctx, pipe); err != nil {
		return false, false, err
	}
	if err := listeners.Err(); err != nil && !together.Answered(err) { // not allowed, or renamed: nobody hears
		return false, false, err
	}
	return listeners.Val() > 0, there.Val() > 0, there.Err()
}

// tellDisplaced tells Config.OnDisplaced.
func (r *Registry) tellDisplaced() {
	r.mu.Lock()
	displaced := r.table.displaced
	r.table.displaced = nil
	r.mu.Unlock()
	if r.cfg.OnDisplaced != nil {
		for _, d := range displaced {
			r.cfg.OnDisplaced(d.imei, d.owner)
		}
	}
}
