package registry

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/subscribe"
)

const (
	// tellAgain is the least time between two calls of Config.OnDisplaced for one claim whose
	// device was not heard meanwhile.
	tellAgain = 5 * time.Minute
	// toldPrefix begins a message of another owner about devices in dispute: its id follows, and
	// pairs (see compare). No IMEI begins so. Any other message is IMEIs that were taken over: see
	// tell in owner.lua.
	toldPrefix = "/"
)

// A dispute is about a device that is held here while its entry names another instance. One of the
// two sockets is half open, most likely, and a parked device does not say which.
type dispute struct {
	owner   string    // the other instance
	asked   time.Time // when it was last asked
	unheard bool      // it lives, and did not hear that
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
	if now.Sub(d.dispute.asked) >= t.interval {
		d.dispute.asked = now
		t.asks[owner] = append(t.asks[owner], d.claim)
	}
}

// proof reports whether there is proof against the other instance's claim, not older than a second:
// the last frame. Proof that is older is none any more.
func (t *table) proof(d *device, now time.Time) bool {
	if d.state != proven {
		return false
	}
	if now.Sub(d.claim.heard) < fresh {
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
// heard a device, and which. The one that heard it later has the socket that is open, most likely.
// A device that is not held here: what may name this instance is handed back. Heard earlier here:
// this socket is to be looked at. Heard later here: it is in later, and the other is to be told so
// in the same words. An owner that is in dispute with the other has asked it, and does not answer:
// so two never talk without end.
func (t *table) compare(other string, pairs []string, now time.Time) (later []*Claim) {
	for i := 0; i+1 < len(pairs); i += 2 {
		theirs, err := strconv.ParseInt(pairs[i], 10, 64)
		if err != nil {
			break // not a message of ours
		}
		d := t.devices[pairs[i+1]]
		if d == nil || d.claim == nil {
			t.met(pairs[i+1], 0)
			continue
		}
		ours := now.Sub(d.claim.heard).Milliseconds()
		asked := d.dispute != nil && d.dispute.owner == other
		switch {
		case ours > theirs || ours == theirs && asked: // of equals the one that the entry names has it
			t.displace(d, other, now)
		case !asked:
			later = append(later, d.claim)
		}
	}
	return later
}

// answered notes that another owner heard what it was asked about these claims, or did not though
// it lives.
func (t *table) answered(owner string, claims []*Claim, heard bool, now time.Time) {
	for _, c := range claims {
		if d := c.d; d.claim == c && d.dispute != nil && d.dispute.owner == owner {
			if !heard && d.dispute.unheard {
				t.displace(d, owner, now) // nobody will ever look there: it is here that one can
			}
			d.dispute.unheard = !heard
		}
	}
}

// listen hears of devices that have registered elsewhere, and has them looked at. It is a help:
// what is not heard is found by a later look.
func (r *Registry) listen(ctx context.Context) error {
	subscribe.Channel{
		Client: r.cfg.Control, Name: r.keys.Heartbeat(r.id), Silence: r.cfg.HeartbeatTTL, Log: r.log,
		Retry:   func() time.Duration { return r.cfg.HeartbeatInterval / 10 },
		Message: func(m string) { r.told(ctx, strings.Fields(m)) },
	}.Run(ctx)
	return nil
}

// told has devices looked at that are said to be elsewhere, or compares what another owner says of
// them.
func (r *Registry) told(ctx context.Context, words []string) {
	if len(words) > 0 && strings.HasPrefix(words[0], toldPrefix) {
		other := words[0][len(toldPrefix):]
		r.mu.Lock()
		later := r.table.compare(other, words[1:], time.Now())
		r.mu.Unlock()
		if len(later) > 0 {
			if _, err := r.tell(ctx, other, later); err != nil {
				// It asks again.
				r.log.Debug("another owner could not be answered", "owner", other, "error", err)
			}
		}
		r.tellDisplaced()
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, imei := range words {
		if d := r.table.devices[imei]; d != nil {
			r.table.suspect(d)
		}
	}
}

// ask asks the other owners about devices in dispute: which of us has heard them later? The one
// that has not looks whether its own socket is half open (see compare). One that cannot be asked is
// asked in an interval.
func (r *Registry) ask(ctx context.Context, asks map[string][]*Claim) {
	for owner, claims := range asks {
		r.log.Debug("entries name another instance", "owner", owner, "devices", len(claims))
		heard, err := r.tell(ctx, owner, claims)
		if err != nil {
			r.log.Debug("another owner could not be asked", "owner", owner, "error", err)
			continue
		}
		r.mu.Lock()
		r.table.answered(owner, claims, heard, time.Now())
		r.mu.Unlock()
	}
}

// tell tells another owner how long ago devices were heard here, at most batchSize of them. It is
// heard too where that owner does not live: its entries will be swept.
func (r *Registry) tell(
	ctx context.Context, owner string, claims []*Claim,
) (heard bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	msg := append(make([]byte, 0, 32*(len(claims)+1)), toldPrefix+r.id...)
	r.mu.Lock()
	now := time.Now()
	for _, c := range claims {
		if c.d.claim == c {
			msg = strconv.AppendInt(append(msg, ' '), now.Sub(c.heard).Milliseconds(), 10)
			msg = append(append(msg, ' '), c.d.imei...)
		}
	}
	r.mu.Unlock()
	n, err := r.cfg.Client.Publish(ctx, r.keys.Heartbeat(owner), msg).Result()
	if err != nil && !redis.IsPermissionError(err) {
		return false, err
	}
	if n > 0 {
		return true, nil
	}
	lives, err := r.cfg.Client.Exists(ctx, r.keys.Heartbeat(owner)).Result()
	return lives == 0, err
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
