package console

import (
	"cmp"
	"context"
	"encoding/json"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

const (
	// A leader's description has its passes' outcomes.
	aboutEvery, aboutLeader = 30 * time.Second, 10 * time.Second
	aboutTTL                = 5 * time.Minute
	// After a longPass a pass' progress is published, once in aboutLook at most.
	longPass, aboutLook = time.Second, time.Second
	aboutCall           = stopTimeout / 2 // it must not hold up a stop
)

// announce publishes this replica's description: each replica's page shows all replicas.
func (s *HTTP) announce(ctx context.Context) {
	failing := streak.New(s.cfg.Logger, "this replica cannot say in Redis what it is",
		"this replica says in Redis what it is", "key", s.cfg.Layout.About("ID"), "allow", "SET")
	var (
		last    time.Time
		told    inspect.About
		leading bool
	)
	for wait.For(ctx, aboutLook) {
		st := s.cfg.Status().common()
		about := s.about(st)
		every := aboutEvery
		if st.Janitor.Leading {
			every = aboutLeader
		}
		changed := about.Boot != told.Boot || st.Janitor.Leading != leading ||
			len(about.UnderWay) > 0 || len(told.UnderWay) > 0
		if about.Boot == "" || !changed && time.Since(last) < every {
			continue
		}
		text, err := json.Marshal(about)
		if err == nil {
			err = s.tellOnce(ctx, st.Instance, text)
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

func (s *HTTP) tellOnce(ctx context.Context, instance string, text []byte) error {
	ctx, cancel := context.WithTimeout(ctx, aboutCall)
	defer cancel()
	return s.cfg.Client.Set(ctx, s.cfg.Layout.About(instance), text, aboutTTL).Err()
}

func (s *HTTP) about(st Status) inspect.About {
	a := inspect.About{
		Boot: st.Registry.Boot, Program: s.cfg.Program, Version: st.Version, Address: s.address,
		Interval: st.Registry.Interval, TTL: st.Registry.TTL, Registered: st.Registry.Registered,
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
