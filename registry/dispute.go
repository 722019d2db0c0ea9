package registry

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/keyless"
	"github.com/rollcall-redis/rollcall/internal/subscribe"
)

const (
	// tellAgain is the least time between two calls of Config.OnDisplaced for one claim whose
	// device was not heard meanwhile.
	tellAgain = 5 * time.Minute
	// toldPrefix begins a message of another owner about devices in dispute: its id follows, and
	// pairs (see compare). No word for an IMEI begins so. Any other message is a list of IMEIs that
	// another owner has taken over: see tell in owner.lua.
	toldPrefix = "/"
)

// A dispute is about a device that is held here while its entry names another instance. One of the
// two sockets is half open, most likely, and a parked device does not say which.
type dispute struct {
	owner   string    // the other instance
	asked   time.Time // when it was last asked
	unheard bool      // it lives, and did not hear that
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
	if now.Sub(d.dispute.asked) >= t.interval {
		d.dispute.asked = now
		t.asks[owner] = append(t.asks[owner], d.claim)
	}
}

// takeAsks returns what other instances are to be asked, once.
func (t *table) takeAsks() map[string][]*Claim {
	asks := t.asks
	t.asks = map[string][]*Claim{}
	return asks
}

// proof reports whether there is proof against the other instance's claim, not older than a second:
// the last frame. Older proof no longer counts.
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
// heard a device, and which. The owner that heard a device later has the open socket, most likely.
//
//   - Not held here: what may name this instance is handed back.
//   - Heard earlier here: the socket here is to be checked.
//   - Heard later here: the other owner is to be told so, in the same words (later). But an owner
//     that has asked about this device does not answer, so that two never talk without end.
func (t *table) compare(other string, pairs []string, now time.Time) (later []*Claim) {
	for i := 0; i+1 < len(pairs); i += 2 {
		theirs, err := strconv.ParseInt(pairs[i], 10, 64)
		if err != nil {
			break // not a message of ours
		}
		imei := unword(pairs[i+1])
		d := t.devices[imei]
		if d == nil || d.claim == nil {
			t.named(imei, 0)
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

// answered notes whether another owner heard what it was asked about these claims. One that did not
// hear it twice, though it lives, never will: then the socket here is the one that can be checked.
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
	later := r.table.compare(other, words[1:], time.Now())
	r.mu.Unlock()
	if len(later) > 0 {
		if _, _, err := r.tell(ctx, other, later); err != nil { // it asks again
			r.log.Debug("another owner could not be answered", "owner", other, "error", err)
		}
	}
	r.tellDisplaced()
}

// ask asks the other owners about devices in dispute: which of us has heard them later? The other
// one checks whether its own socket is half open (see compare). An owner that cannot be asked is
// asked again in an interval.
func (r *Registry) ask(ctx context.Context, asks map[string][]*Claim) {
	for owner, claims := range asks {
		r.log.Debug("entries name another instance", "owner", owner, "devices", len(claims))
		heard, lives, err := r.tell(ctx, owner, claims)
		if err != nil {
			r.log.Debug("another owner could not be asked", "owner", owner, "error", err)
			continue
		}
		r.mu.Lock()
		r.table.answered(owner, claims, heard || !lives, time.Now())
		r.table.silent(owner, claims, !lives && canBeInstance(owner))
		r.mu.Unlock()
	}
}

// tell sends another owner how long ago devices were heard here, at most batchSize of them. It
// reports whether somebody receives that, and whether the owner has a heartbeat. A process whose
// heartbeats are refused may still listen, and so may anybody else.
func (r *Registry) tell(
	ctx context.Context, owner string, claims []*Claim,
) (heard, lives bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	msg := append(make([]byte, 0, 32*(len(claims)+1)), toldPrefix+r.id...)
	r.mu.Lock()
	now := time.Now()
	for _, c := range claims {
		if c.d.claim == c {
			msg = fmt.Appendf(msg, " %d %s", now.Sub(c.heard).Milliseconds(), word(c.d.imei))
		}
	}
	r.mu.Unlock()
	channel := r.keys.Heartbeat(owner)
	at, err := keyless.At(ctx, r.cfg.Client, channel)
	if err != nil {
		return false, false, err
	}
	n, err := at.Publish(ctx, channel, msg).Result()
	if err != nil && !redis.IsPermissionError(err) {
		return false, false, err
	}
	there, err := r.cfg.Client.Exists(ctx, channel).Result()
	if err == nil && n == 0 && there > 0 {
		n, err = r.listeners(ctx, channel)
	}
	return n > 0, there > 0, err
}

// listeners counts who listens on a channel at any node of a Cluster. PUBLISH reaches all of them,
// and counts those of one node. A client has one connection for all its channels, to any node.
func (r *Registry) listeners(ctx context.Context, channel string) (int64, error) {
	c, ok := r.cfg.Client.(*redis.ClusterClient)
	if !ok {
		return 0, nil // PUBLISH has counted them
	}
	var all atomic.Int64
	err := c.ForEachShard(ctx, func(ctx context.Context, node *redis.Client) error {
		found, err := node.PubSubNumSub(ctx, channel).Result()
		all.Add(found[channel])
		return err
	})
	if n := all.Load(); n > 0 {
		return n, nil
	}
	return 0, err
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
