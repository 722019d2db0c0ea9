package registry

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// tellAgain is the least time between two calls of Config.OnDisplaced for one claim whose device was not heard meanwhile.
const tellAgain = 5 * time.Minute

// A dispute is about a device that is held here while its entry names another instance. One of the two
// sockets is half open, most likely, and a parked device does not say which.
type dispute struct {
	owner    string // the other instance
	evidence evidence
	asked    time.Time // when the other instance was last asked
	unheard  bool      // it lives, and did not hear that
}

// evidence that a device is really at the other end of its socket, collected while its entry
// names another instance.
type evidence uint8

const (
	none         evidence = iota
	foreignSeen           // this replica has seen the foreign claim
	acknowledged          // and acknowledged a frame after that
	proven                // and a further frame arrived: the device got the acknowledgement
)

// counts reports whether there is proof against the other instance's claim, not older than a second: c's last frame.
// Proof that is older is none any more.
func (t *dispute) counts(c *Claim, now time.Time) bool {
	if t == nil || t.evidence != proven {
		return false
	}
	if now.Sub(c.heard) < fresh {
		return true
	}
	t.evidence = foreignSeen
	return false
}

// drop drops the evidence: a call failed, and what the entry is now nobody knows. It must be seen anew.
func (t *dispute) drop() {
	if t != nil {
		t.evidence = none
	}
}

// foreign notes that an entry names another instance: only evidence takes it back. Caller holds mu.
func (r *Registry) foreign(o op, owner string) {
	if o.d.claim != o.claim {
		return
	}
	if t := o.d.dispute; t == nil || t.owner != owner {
		r.log.Debug("entry names another instance", "imei", o.d.imei, "owner", owner)
		r.change(o.d, func() { o.d.dispute = &dispute{owner: owner, evidence: foreignSeen} })
	} else if t.evidence == none { // else what proof has come meanwhile stands
		t.evidence = foreignSeen
	}
	r.unsettle(o.d)
	if now := time.Now(); now.Sub(o.d.dispute.asked) >= r.cfg.HeartbeatInterval {
		o.d.dispute.asked = now
		r.asks = append(r.asks, o.claim)
	}
}

// ask asks the other owners about devices in dispute: who of us has heard them later? Who has not
// looks whether its own socket is half open (see compare).
func (r *Registry) ask(ctx context.Context, claims []*Claim) {
	r.mu.Lock()
	by := make(map[string][]*Claim)
	for _, c := range claims {
		if t := c.d.dispute; c.d.claim == c && t != nil {
			by[t.owner] = append(by[t.owner], c)
		}
	}
	r.mu.Unlock()
	for owner, claims := range by {
		heard, err := r.tell(ctx, owner, claims)
		if err != nil {
			r.log.Debug("another owner could not be asked", "owner", owner, "error", err)
			continue // again in an interval
		}
		r.mu.Lock()
		for _, c := range claims {
			t := c.d.dispute
			if c.d.claim != c || t == nil || t.owner != owner {
				continue
			}
			if !heard && t.unheard {
				r.displace(c.d, owner) // nobody will ever look there: it is here that one can
			}
			t.unheard = !heard
		}
		r.mu.Unlock()
	}
}

// tell tells another owner how long ago devices were heard here, at most batchSize of them. It is heard too
// where that owner does not live: its entries will be swept.
func (r *Registry) tell(ctx context.Context, owner string, claims []*Claim) (heard bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r.mu.Lock()
	now := time.Now()
	msg := make([]byte, 0, 32*(len(claims)+1))
	msg = append(append(msg, toldPrefix...), r.id...)
	for _, c := range claims {
		msg = strconv.AppendInt(append(msg, ' '), now.Sub(c.heard).Milliseconds(), 10)
		msg = append(append(msg, ' '), c.d.imei...)
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

// compare compares what another owner says with what is known here, in pairs: how many ms ago it heard a device, and which. Who heard
// it later has the socket that is open, most likely. A device that is not held here: what may name this instance is handed
// back. Heard earlier here: this socket is to be looked at. Heard later here: the other is told so, in the same words.
// Whoever is in dispute with the other has asked it, and does not answer: so two never talk without end.
func (r *Registry) compare(ctx context.Context, other string, pairs []string) {
	var later []*Claim
	r.mu.Lock()
	now := time.Now()
	for i := 0; i+1 < len(pairs); i += 2 {
		theirs, err := strconv.ParseInt(pairs[i], 10, 64)
		if err != nil {
			break // not a message of ours
		}
		imei := pairs[i+1]
		d := r.devices[imei]
		if d == nil || d.claim == nil {
			r.metMember(imei, 0)
			continue
		}
		ours := now.Sub(d.claim.heard).Milliseconds()
		asked := d.dispute != nil && d.dispute.owner == other
		switch {
		case ours > theirs || ours == theirs && asked: // of equals the one that the entry names has it
			r.displace(d, other)
		case !asked:
			later = append(later, d.claim)
		}
	}
	r.mu.Unlock()
	if len(later) > 0 {
		if _, err := r.tell(ctx, other, later); err != nil {
			r.log.Debug("another owner could not be answered", "owner", other, "error", err) // it asks again
		}
	}
	r.displaced()
}

// A move is a device held here that another instance heard later.
type move struct{ imei, owner string }

// displace has Config.OnDisplaced told of a device. Caller holds mu, and calls displaced when it does not any more.
func (r *Registry) displace(d *device, owner string) {
	c, now := d.claim, time.Now()
	if r.cfg.OnDisplaced == nil || now.Sub(c.told) < tellAgain && !c.heard.After(c.told) {
		return
	}
	c.told = now
	r.moves = append(r.moves, move{d.imei, owner})
}

func (r *Registry) displaced() {
	r.mu.Lock()
	moves := r.moves
	r.moves = nil
	r.mu.Unlock()
	for _, m := range moves {
		r.cfg.OnDisplaced(m.imei, m.owner)
	}
}
