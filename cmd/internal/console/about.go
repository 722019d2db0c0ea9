package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/internal/timeline"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

const (
	// A leader's description has its passes' outcomes.
	aboutEvery, aboutLeader = 30 * time.Second, 10 * time.Second
	aboutTTL                = 5 * time.Minute
	aboutFailing            = 3 * aboutLeader // of a failing replica, which may end soon
	// After a longPass a pass' progress is published, once in aboutLook at most.
	longPass, aboutLook = time.Second, time.Second
	aboutCall           = stopTimeout / 2 // it must not hold up a stop
)

// alone returns an error if another program's replicas are in this fleet: whichever led, the sweeps
// of the other would not run. A janitor only sweeps for others.
func (s *HTTP) alone(ctx context.Context) error {
	for pause := time.Duration(0); s.cfg.Program != "janitor" && wait.For(ctx, pause); pause = aboutEvery {
		r, err := s.fleet.now(ctx, fleetCall)
		if err != nil {
			continue
		}
		for _, in := range r.status.Instances {
			if in.Alive && in.Program != "" && in.Program != "janitor" && in.Program != s.cfg.Program {
				return fmt.Errorf("console: %s, which runs %s, is in this fleet (prefix %q): give each program a prefix, "+
					"or a Redis, of its own", in.ID, in.Program, s.cfg.Layout.Prefix)
			}
		}
		break
	}
	return nil
}

// rightsEvery is how often the rights of this replica's user are looked at.
const rightsEvery = 30 * time.Second

// lookAtRights asks for each right, of this program too.
func (s *HTTP) lookAtRights(ctx context.Context, lacking *streak.Streak) {
	ctx, cancel := context.WithTimeout(ctx, fleetCall)
	defer cancel()
	_, found, err := s.questions.reader.Rights(ctx, s.cfg.Program)
	if err != nil { // this user may not even ask
		return
	}
	lacks, misses := []string{}, []string{}
	for _, f := range found {
		text := strings.TrimSuffix(f.Sentence[strings.Index(f.Sentence, " may not ")+9:], ".")
		if f.Level == inspect.Wrong {
			lacks = onOne(lacks, text)
		} else {
			misses = onOne(misses, "its user may not "+text)
		}
	}
	s.lacks.Store(&lacks)
	s.misses.Store(&misses)
	err = nil
	if len(lacks) > 0 {
		err = errors.New(strings.Join(lacks[:min(len(lacks), mostLacks)], ", "))
	}
	lacking.Note(err)
}

// onOne adds a right, with the one before it if that is on the same key or channel.
func onOne(rights []string, right string) []string {
	names, on, _ := strings.Cut(right, " on ")
	if last := len(rights) - 1; last >= 0 {
		before, same := strings.CutSuffix(rights[last], " on "+on)
		if same {
			rights[last] = before + ", " + names[strings.LastIndex(names, " ")+1:] + " on " + on
			return rights
		}
	}
	return append(rights, right)
}

// mostLacks are published.
const mostLacks = 10

func (s *HTTP) knows(st Status) inspect.Knows {
	k := st.Knows()
	if lacks := s.lacks.Load(); lacks != nil {
		k.Lacks = (*lacks)[:min(len(*lacks), mostLacks)]
	}
	if misses := s.misses.Load(); misses != nil {
		k.Warnings = append(k.Warnings, (*misses)[:min(len(*misses), mostLacks)]...)
	}
	return k
}

// announce publishes this replica's description: each replica's page shows all replicas.
func (s *HTTP) announce(ctx context.Context) {
	failing := streak.New(s.cfg.Logger, "this replica cannot say in Redis what it is",
		"this replica says in Redis what it is", "key", s.cfg.Layout.About("ID"), "allow", "SET")
	lacking := streak.New(s.cfg.Logger, "Redis' user lacks rights that this program needs",
		"Redis' user has all rights", "allow", "rollcall doctor says how")
	var (
		last    time.Time
		looked  time.Time // at the rights
		told    inspect.About
		leading bool
	)
	for wait.For(ctx, aboutLook) {
		st := s.cfg.Status().common()
		if time.Since(looked) >= rightsEvery && !strings.Contains(st.Registry.Refused, "WRONGPASS") {
			s.lookAtRights(ctx, lacking)
			looked = time.Now()
		}
		about := s.about(st)
		every := aboutEvery
		lasts := aboutTTL
		if len(about.Failing) > 0 {
			every, lasts = aboutLeader, aboutFailing
		} else if st.Janitor.Leading {
			every = aboutLeader
		}
		changed := about.Boot != told.Boot || st.Janitor.Leading != leading ||
			len(about.UnderWay) > 0 || len(told.UnderWay) > 0 || !about.Knows.Same(told.Knows)
		if about.Boot == "" || !changed && time.Since(last) < every {
			continue
		}
		text, err := json.Marshal(about)
		if err == nil {
			err = s.tellOnce(ctx, st.Instance, text, lasts)
		}
		if ctx.Err() != nil {
			return
		}
		// The registry reports that Redis is down.
		if err == nil || inspect.Refused(err) {
			failing.Note(err)
		}
		if err == nil {
			last, told, leading = time.Now(), about, st.Janitor.Leading
		}
	}
}

func (s *HTTP) tellOnce(ctx context.Context, instance string, text []byte, lasts time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, aboutCall)
	defer cancel()
	return s.cfg.Client.Set(ctx, s.cfg.Layout.About(instance), text, lasts).Err()
}

func (s *HTTP) about(st Status) inspect.About {
	a := inspect.About{
		Boot: st.Registry.Boot, Program: s.cfg.Program, Version: st.Version, Address: s.address,
		Interval: st.Registry.Interval, TTL: st.Registry.TTL, Knows: s.knows(st),
	}
	if !st.Janitor.Leading {
		return a
	}
	a.Passes = st.Janitor.Sweeps
	for _, p := range st.Janitor.Passes {
		if time.Since(p.Started) >= longPass {
			a.UnderWay = append(a.UnderWay, p)
		}
	}
	return a
}

// reachable takes the machine's own address, or else its host name, for all interfaces.
func reachable(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return addr.String()
	}
	host, _ := os.Hostname()
	// This sends nothing: the kernel only chooses which of its addresses it would send from.
	if c, err := net.Dial("udp", "192.0.2.1:9"); err == nil {
		host = c.LocalAddr().(*net.UDPAddr).IP.String()
		_ = c.Close()
	}
	return net.JoinHostPort(cmp.Or(host, "localhost"), strconv.Itoa(tcp.Port))
}

// count writes how large the fleet is, each minute while this replica leads.
func (s *HTTP) count(ctx context.Context) {
	key := s.cfg.Layout.Minutes()
	failing := streak.New(s.cfg.Logger, "cannot write the minutes; nobody is told that the fleet shrank",
		"the minutes are written", "key", key, "allow", "XADD")
	var at time.Time
	for wait.For(ctx, aboutLook) {
		st := s.cfg.Status().common()
		if !st.Janitor.Leading || !at.IsZero() && time.Since(at) < time.Minute {
			continue
		}
		err := s.countOnce(ctx, st.Instance)
		if ctx.Err() != nil {
			return
		}
		// The registry reports that Redis is down.
		if err == nil || inspect.Refused(err) || redis.HasErrorPrefix(err, "WRONGTYPE ") {
			failing.Note(err)
		}
		at = time.Now() // also after a failure
	}
}

func (s *HTTP) countOnce(ctx context.Context, own string) error {
	ctx, cancel := context.WithTimeout(ctx, fleetCall)
	defer cancel()
	r, err := s.fleet.now(ctx, fleetCall)
	if err != nil {
		return err
	}
	if p := r.status.Partitions; p != nil && !slices.Contains(p.Leads(own), 0) {
		return nil // one leader counts for all
	}
	m := timeline.Minute{Entries: r.status.Entries}
	for _, in := range r.status.Instances {
		if in.Alive {
			m.Living++
		}
	}
	return timeline.AddMinute(ctx, s.cfg.Client, s.cfg.Layout.Minutes(), m)
}
