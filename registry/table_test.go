package registry

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	errLost     = errors.New("connection lost")
	anInstant   = time.Unix(1_700_000_000, 0)
	quiteAWhile = 5 * time.Second // longer than anything is fresh
)

// timed is a table with its clock.
type timed struct {
	*testing.T
	table
	now time.Time
}

func newTimed(t *testing.T) *timed {
	d := &timed{t, newTable("me", 30*time.Second, 90*time.Second), anInstant}
	d.clock.read(anInstant.UnixMilli(), anInstant, anInstant)
	return d
}

func (d *timed) claim(imei string) *Claim {
	c := &Claim{made: d.now, sock: Socket{Close: func() error { return nil }}, h: &holding{}}
	d.register(c, imei)
	return c
}

// batch makes the next batch and returns what it does with its only device.
func (d *timed) batch() (what string, ops []op) {
	d.Helper()
	b := d.next(d.now)
	for name, some := range map[string][]op{"register": b.register, "heal": b.heal, "release": b.release, "check": b.check} {
		if len(some) > 0 {
			require.Empty(d, what, "one device, one operation")
			what, ops = name, some
		}
	}
	return what, ops
}

func (d *timed) answer(ops []op, got reply, err error) {
	d.wrote(ops, got, err, d.now)
	d.ended(err)
}

func (d *timed) entry(ops []op, owner any, err error) {
	d.checked(ops, []any{owner}, err, d.now)
	d.ended(err)
}

// does makes the next batch, which does this.
func (d *timed) does(want string) []op {
	d.Helper()
	what, ops := d.batch()
	require.Equal(d, want, what)
	return ops
}

// writes makes it, whatever it does, with this answer.
func (d *timed) writes(got reply, err error) {
	_, ops := d.batch()
	d.answer(ops, got, err)
}

// stands registers a device that Redis knows.
func (d *timed) stands(imei string) *Claim {
	d.Helper()
	c := d.claim(imei)
	d.writes(reply{}, nil)
	require.Equal(d, standing, d.holdings[imei].state)
	return c
}

// namesR2 makes a standing device's entry name r2.
func (d *timed) namesR2(c *Claim) {
	d.Helper()
	d.checkStanding(c.h)
	d.entry(d.does("check"), "r2", nil)
	require.Equal(d, foreign, c.h.state)
	d.answer(d.does("heal"), reply{foreign: map[string]string{c.h.id: "r2"}}, nil)
	require.Equal(d, foreign, c.h.state)
	require.False(d, c.h.indexed)
}

// in brings a device into a state and returns its claim, even if released.
func (d *timed) in(s state) *Claim {
	d.Helper()
	if s == unwritten {
		return d.claim("imei")
	}
	c := d.stands("imei")
	switch s {
	case registering:
		c = d.claim("imei")
	case unconfirmed:
		d.set(c.h, unconfirmed)
	case foreign:
		d.namesR2(c)
	case releasing, released:
		d.release(c, d.now)
		if s == released {
			d.writes(reply{}, errLost)
			d.retry(d.now)
			d.writes(reply{}, nil)
		}
	}
	require.Equal(d, s, c.h.state)
	return c
}

func TestWhatTheWriterDoesWithADeviceInEachState(t *testing.T) {
	t.Parallel()
	for s, want := range map[state]struct{ atOnce, later, failed string }{
		// The operations of a retry now and after a while, and of a retry after a failed call.
		unwritten:   {"register", "heal", "heal"},
		registering: {"register", "heal", "heal"},
		unconfirmed: {"heal", "heal", "heal"},
		standing:    {"", "", "heal"},
		foreign:     {"check", "check", "check"},
		releasing:   {"release", "release", "release"},
		released:    {"release", "release", "release"},
	} {
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			t.Parallel()
			for _, waits := range []bool{false, true} {
				d := newTimed(t)
				d.in(s)
				expected := want.atOnce
				if waits {
					d.now = d.now.Add(quiteAWhile)
					expected = want.later
				}
				d.retry(d.now)
				what, ops := d.batch()
				require.Equal(t, expected, what)
				require.Empty(t, d.miscounted())
				if s == standing { // a beat checks it
					d.checkShard(0)
					what, ops = "check", d.does("check")
				}
				if what == "check" {
					d.entry(ops, nil, errLost)
				} else {
					d.answer(ops, reply{}, errLost)
				}
				require.Empty(t, d.miscounted())
				d.retry(d.now)
				what, _ = d.batch()
				require.Equal(t, want.failed, what, "after a failure")
				require.Empty(t, d.miscounted())
			}
		})
	}
}

func TestWhatACheckFinds(t *testing.T) {
	t.Parallel()
	for s, want := range map[state]struct{ ours, gone, others state }{
		standing: {standing, unconfirmed, foreign},
		foreign:  {unconfirmed, unconfirmed, foreign},
	} {
		for owner, state := range map[any]state{"me": want.ours, nil: want.gone, "": want.gone, "r2": want.others, "r3": foreign} {
			d := newTimed(t)
			c := d.in(s)
			d.enqueue(c.h, false)
			_, ops := d.batch()
			d.entry(ops, owner, nil)
			require.Equal(t, state, c.h.state, "state %d, the entry names %v", s, owner)
			require.Empty(t, d.miscounted())
		}
	}
}

func TestAReleaseOfEachState(t *testing.T) {
	t.Parallel()
	for s := unwritten; s <= foreign; s++ {
		d := newTimed(t)
		c := d.in(s)
		d.release(c, d.now)
		d.release(c, d.now)
		if s == unwritten {
			require.Equal(t, forgotten, c.h.state, "Redis was never asked")
			require.Empty(t, d.holdings)
			continue
		}
		require.Equal(t, releasing, c.h.state)
		ops := d.does("release")
		d.answer(ops, reply{}, nil)
		require.Equal(t, forgotten, c.h.state)
		require.Zero(t, d.held()+d.left()+d.pending())
		require.True(t, d.idle())
	}
}

func TestAWriteOfUnknownFateIsCheckedForAWholeTTL(t *testing.T) {
	t.Parallel()
	d := newTimed(t)
	c := d.claim("imei")
	d.writes(reply{}, errLost)
	d.retry(d.now)
	ops := d.does("heal")
	d.answer(ops, reply{}, nil)
	require.Equal(t, standing, c.h.state)
	for _, want := range []string{"check", "check", "check", "check", ""} {
		d.now = d.now.Add(d.ttl * 3 / 10)
		d.retry(d.now)
		what, ops := d.batch()
		require.Equal(t, want, what)
		if what == "check" {
			d.entry(ops, "me", nil)
		}
	}
	require.Empty(t, d.again)
}

func TestWhatIsDecidedAnewWhileItIsWrittenIsLeftToTheNextBatch(t *testing.T) {
	t.Parallel()
	d := newTimed(t)
	c := d.stands("imei")
	d.release(c, d.now)
	_, ops := d.batch()
	back := d.claim("imei")
	require.Empty(t, d.wanted(ops), "a device that came back is not released behind its back")
	ops = d.does("register")
	d.release(back, d.now)
	require.Empty(t, d.wanted(ops))
	require.Equal(t, releasing, back.h.state)
}

func TestEverythingIsCheckedOnceAnIntervalWhateverIsLost(t *testing.T) {
	t.Parallel()
	const interval, ttl = 30 * time.Second, 90_000
	now := anInstant
	for what, got := range map[string]reply{
		"its record was missing":             {lost: "1", last: 5},
		"it was silent for a TTL":            {lost: "1", found: 5, last: 5 + ttl},
		"the witness says that one was lost": {lost: "2", found: 5, last: 5},
	} {
		var s surprises
		s.note(reply{found: 4, last: 5}, ttl)
		s.note(reply{found: 5, last: 5 + ttl - 1, lost: "1"}, ttl)
		require.NotEmpty(t, s.due(now, interval), "nobody could say so before")
		s = surprises{read: true, lost: "1"}
		s.note(reply{found: 5, last: 5}, ttl)
		s.note(reply{found: 5, last: 5, lost: "1"}, ttl)
		require.Empty(t, s.due(now, interval), "a witness that is gone, and back, says nothing new")
		s.note(got, ttl)
		require.NotEmpty(t, s.due(now, interval), what)
		require.Empty(t, s.due(now, interval), "once")
		s.note(reply{lost: got.lost}, ttl)
		require.Empty(t, s.due(now.Add(interval-1), interval), "not so soon")
		require.NotEmpty(t, s.due(now.Add(interval), interval), "but not forgotten")
	}
}

// server models Redis: entries, an index, and writes that land late.
type server struct {
	entries map[string]string
	index   map[string]bool
	late    []func()
}

// do runs one kind of operation and returns the script's reply.
func (s *server) do(what string, ops []op) (got reply) {
	got.foreign = map[string]string{}
	for _, o := range ops {
		imei := o.h.id
		now, there := s.entries[imei]
		switch {
		case what == "release":
			if now == "me" {
				delete(s.entries, imei)
			}
			delete(s.index, imei)
		case what == "heal" && there && now != "me":
			got.foreign[imei] = now
		default:
			s.entries[imei], s.index[imei] = "me", true
		}
	}
	return got
}

// happens is a random action of a socket.
func happens(d *timed, rnd *rand.Rand, claims map[string]*Claim) {
	id := fmt.Sprint(rnd.IntN(20))
	c := claims[id]
	switch what := rnd.IntN(6); {
	case c == nil || what < 2:
		claims[id] = d.claim(id)
	case what < 4:
		d.release(c, d.now)
	case what < 5:
		d.touch(c, d.now)
	default: // of an older socket, or of a newer one
		ms := d.clock.when(d.now)
		at := ms - int64(rnd.IntN(10_000))
		d.compare("r2", []string{fmt.Sprint(ms), fmt.Sprint(at), id}, d.now)
	}
}

// TestTheTableAgreesWithRedisInTheEnd applies random events to a table and a server: opens, closes,
// messages, moves, losses; calls that fail before or after they run, or land late. Then nothing
// fails any more: held devices are standing, or name another that holds them; nothing else names
// this instance; nothing is remembered.
func TestTheTableAgreesWithRedisInTheEnd(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		d, s := newTimed(t), &server{entries: map[string]string{}, index: map[string]bool{}}
		d.spare = -rnd.IntN(25) // remembers few
		claims := map[string]*Claim{}
		imei := func() string { return fmt.Sprint(rnd.IntN(20)) }
		failing, open := false, true
		write := func(what string, ops []op) error {
			ops = d.wanted(ops)
			if len(ops) == 0 {
				return nil
			}
			var got reply
			var err error
			switch {
			case !failing || rnd.IntN(2) == 0:
				got = s.do(what, ops)
			case rnd.IntN(3) == 0: // lost on its way
				err = errLost
			case rnd.IntN(2) == 0: // its reply is lost
				s.do(what, ops)
				err = errLost
			default:
				s.late = append(s.late, func() { s.do(what, ops) })
				err = errLost
			}
			for open && rnd.IntN(3) == 0 { // the answer takes a while
				happens(d, rnd, claims)
			}
			d.wrote(ops, got, err, d.now)
			return err
		}
		batch := func() {
			b := d.next(d.now)
			err := errors.Join(write("register", b.register), write("release", b.release), write("heal", b.heal))
			if len(b.check) > 0 {
				found := make([]any, len(b.check))
				for i, o := range b.check {
					if owner, there := s.entries[o.h.id]; there {
						found[i] = owner
					}
				}
				d.checked(b.check, found, nil, d.now)
			}
			d.ended(err)
			d.asks, d.heard = map[string][]*Claim{}, map[string][]string{}
		}
		for range 400 {
			switch rnd.IntN(12) {
			case 0, 1, 2, 3, 4:
				happens(d, rnd, claims)
			case 5:
				s.entries[imei()] = "r2"
			case 6:
				id := imei()
				delete(s.entries, id)
				delete(s.index, id)
			case 7:
				failing = !failing
			case 8:
				d.now = d.now.Add(time.Duration(rnd.IntN(3000)) * time.Millisecond)
				d.retry(d.now)
			case 9:
				if len(s.late) > 0 {
					s.late[0]()
					s.late = s.late[1:]
				}
			default:
				batch()
			}
			require.Empty(t, d.miscounted(), "seed %d", seed)
		}
		failing, open = false, false
		for _, f := range s.late {
			f()
		}
		d.now = d.now.Add(d.ttl + 1)
		for pass := range uint64(3) {
			begun := d.batches
			if !d.searchUntil.IsZero() || d.indexDiffers(len(s.index), d.now) {
				for id := range s.index {
					d.named(id, pass+1)
				}
				d.compareIndex(pass+1, begun)
				if d.now.After(d.searchUntil) {
					d.searchUntil = time.Time{}
				}
			}
			for range 20 {
				d.retry(d.now)
				for i := range shards {
					d.checkShard(i)
				}
				batch()
			}
			d.now = d.now.Add(d.ttl + 1)
		}
		for id, c := range claims {
			if c.h.claim == c {
				require.Contains(t, []string{"me", "r2"}, s.entries[id], "seed %d: %s is held", seed, id)
				require.Equal(t, s.entries[id] == "r2", c.h.state == foreign, "seed %d: %s", seed, id)
				require.True(t, s.index[id] || s.entries[id] != "me", "seed %d: %s in the index", seed, id)
				d.release(c, d.now)
			}
		}
		batch()
		batch()
		for id, owner := range s.entries {
			require.NotEqual(t, "me", owner, "seed %d: %s is not held", seed, id)
		}
		require.Zero(t, d.held()+d.pending()+len(d.lost), "seed %d", seed)
		require.Empty(t, d.miscounted(), "seed %d", seed)
	}
}
