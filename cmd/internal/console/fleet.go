package console

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/cmd/internal/reload"
	"github.com/rollcall-redis/rollcall/internal/timeline"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

const (
	// fleetEvery is the time between two readings, however many clients ask.
	fleetEvery = time.Second
	fleetCall  = 5 * time.Second
	// pagePatience is how long a page waits for a new reading: what was read before is shown with its
	// age.
	pagePatience = 150 * time.Millisecond
)

// fleetStatus is GET /api/v1/fleet: see docs/reference/http.md.
type fleetStatus struct {
	inspect.Status
	Replica  self              `json:"replica"`
	Problems []inspect.Finding `json:"problems"`
	Events   []timeline.Event  `json:"events"`
}

type self struct {
	Instance string `json:"instance"`
	Program  string `json:"program"`
	Version  string `json:"version"`
	Address  string `json:"address"`
	Admin    bool   `json:"admin"`
}

// reading is immutable.
type reading struct {
	at     time.Time
	status inspect.Status
	events []timeline.Event // the last hour's, newest first
}

// fleet is read only while somebody asks.
type fleet struct {
	watch    *inspect.Watch
	patience time.Duration   // of a page
	ctx      context.Context // ends with the server; set before the first request

	mu    sync.Mutex
	last  *reading // the last that Redis answered, or nil
	began time.Time
	err   error         // of the reading that ended last
	under chan struct{} // closed when the reading under way ends; nil: none is
}

func newFleet(r *inspect.Reader) *fleet {
	return &fleet{watch: r.Watch(), patience: pagePatience, ctx: context.Background()}
}

// now returns a reading of the last second, or, once patience is over, the last one and why it is
// older. It is nil if Redis has never answered.
func (f *fleet) now(ctx context.Context, patience time.Duration) (*reading, error) {
	f.mu.Lock()
	if f.under == nil && time.Since(f.began) >= fleetEvery {
		f.began, f.under = time.Now(), make(chan struct{})
		go f.read(f.under)
	}
	under := f.under
	f.mu.Unlock()
	if under != nil {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-under:
		case <-timer.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.under != nil && f.err == nil && f.last != nil && time.Since(f.last.at) < fleetCall:
		return f.last, nil // a part of Redis may be slow to fail
	case f.under != nil && f.err == nil:
		return f.last, fmt.Errorf("no answer yet, after %s", inspect.Short(time.Since(f.began)))
	case f.err != nil:
		return f.last, f.err
	}
	return f.last, nil
}

// read ends with the server, not with a request: others wait for it too.
func (f *fleet) read(done chan struct{}) {
	ctx, cancel := context.WithTimeout(f.ctx, fleetCall)
	defer cancel()
	r := &reading{at: time.Now()}
	var err error
	if r.status, err = f.watch.Status(ctx); err == nil {
		r.events = f.watch.Timeline()
		slices.Reverse(r.events)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err = err; err == nil {
		f.last = r
	}
	f.under = nil
	close(done)
}

// end waits for the reading under way. Its context has ended.
func (f *fleet) end() {
	f.mu.Lock()
	under := f.under
	f.mu.Unlock()
	if under != nil {
		select {
		case <-under:
		case <-time.After(stopTimeout): // a silent Redis holds up the reading
		}
	}
}

// api waits for a present reading.
func (s *HTTP) api(w http.ResponseWriter, req *http.Request) {
	r, err := s.fleet.now(req.Context(), fleetCall)
	if err != nil {
		failWith(w, fmt.Errorf("console: Redis cannot be asked: %w", err))
		return
	}
	st := s.cfg.Status().common()
	status := r.status.Learn(st.Instance, s.knows(st))
	answer(w, http.StatusOK, fleetStatus{Status: status, Replica: s.self(), Problems: status.Findings(), Events: r.events})
}

// Status is what this replica knows of itself, and of the fleet from Redis' last answers, by this
// process' clock: see docs/reference/http.md. A program embeds it in its own status.
type Status struct {
	Instance string    `json:"instance"`
	Version  string    `json:"version"`
	Time     time.Time `json:"time"`
	Started  time.Time `json:"started"`
	Ready    bool      `json:"ready"`
	NotReady string    `json:"not_ready,omitempty"`
	HTTPAddr string    `json:"http_addr"`
	Admin    bool      `json:"admin"`
	// Files are settings that are reread.
	Files []reload.Status `json:"files,omitempty"`

	// NobodyAllowed means that a set of allowed devices is asked for, and is empty.
	NobodyAllowed bool `json:"nobody_allowed,omitempty"`
	// Untold is of inspect.Knows.
	Untold map[string][2]int `json:"-"`

	Redis    connect.RedisStatus `json:"redis"`
	Registry registry.Status     `json:"registry"`
	Janitor  janitor.Status      `json:"janitor"`
}

// Stated is Status, or a struct that embeds it.
type Stated interface{ common() Status }

func (s Status) common() Status { return s }

// Knows is what of this replica no key of the fleet shows.
func (s Status) Knows() inspect.Knows {
	k := inspect.Knows{
		Refused: s.Registry.Refused, Sockets: s.Registry.Held, DryRun: s.Janitor.DryRun,
		Failing: s.Registry.Failing, Ends: map[string]time.Time{}, Files: map[string]string{},
		NobodyAllowed: s.NobodyAllowed, Untold: s.Untold,
	}
	if len(k.Failing) == 0 { // otherwise that is why
		k.NotReady = s.NotReady
	}
	for _, f := range s.Files {
		if f.Error != "" {
			k.Files[f.Setting] = f.Error
		}
		if !f.Ends.IsZero() {
			k.Ends[f.Setting] = f.Ends
		}
	}
	if ends := s.Redis.CertificateEnds; !ends.IsZero() {
		k.Ends["Redis"] = ends
	}
	for _, text := range s.Redis.Warnings {
		if text != connect.EmbeddedNotice { // chosen on purpose, and shown with this replica
			k.Warnings = append(k.Warnings, text)
		}
	}
	return k
}

// Judge fills in Redis and the readiness of a program that only sweeps, called kind in the reason.
func (s *Status) Judge(kind string, c *connect.Clients, draining bool) {
	failing, fails := s.Registry.Failing["heartbeat"]
	never := s.Registry.LastBeat.IsZero()
	s.Redis = c.Status(!fails && !never)
	switch {
	case draining:
		s.NotReady = "draining: this " + kind + " stops"
	case s.Registry.Refused != "":
		s.NotReady = "refused: Redis does not accept this " + kind + ": " + s.Registry.Refused
	case !s.Redis.Reachable && never:
		s.NotReady = "starting: no heartbeat has landed yet"
	case !s.Redis.Reachable:
		s.NotReady = "Redis does not answer: " + failing
	}
	s.Ready = s.NotReady == ""
}
