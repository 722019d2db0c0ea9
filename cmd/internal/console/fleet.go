package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/printable"
	"github.com/rollcall-redis/rollcall/internal/timeline"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

const (
	// fleetEvery is the time between two readings, however many clients ask.
	fleetEvery = time.Second
	fleetCall  = 5 * time.Second
	// minutesEvery readings share one of the minutes.
	minutesEvery = 5
)

// fleetStatus is GET /api/v1/fleet, and a viewer's first message: see docs/reference/http.md.
type fleetStatus struct {
	inspect.Status
	Replica  self              `json:"replica"`
	Whole    bool              `json:"whole"`
	Gone     []string          `json:"gone,omitempty"`
	Problems []inspect.Problem `json:"problems"`
}

type self struct {
	Instance string `json:"instance"`
	Program  string `json:"program"`
	Version  string `json:"version"`
	Address  string `json:"address"`
	Admin    bool   `json:"admin"`

	problems []inspect.Problem // of this replica alone
}

// timelineStatus is GET /api/v1/timeline.
type timelineStatus struct {
	Now    time.Time        `json:"now"`
	Events []timeline.Event `json:"events"`
}

// reading is shared by all clients, and immutable.
type reading struct {
	n      int // from 1
	at     time.Time
	err    error // Redis could not be asked; the rest is void
	status inspect.Status
	events []timeline.Event
	// The last hour as leaders counted it, oldest first.
	minutes []timeline.Minute
	// For a viewer who has seen the reading before; nil: no changes.
	changes, news []byte

	// Each made once, so that a slow reader costs no memory of its own.
	first, next, fleetText, timelineText func() []byte
	parts                                *sync.Map // see part
	looks                                *atomic.Int64
}

// fleet is read only while somebody asks.
type fleet struct {
	watch  *inspect.Watch
	client redis.UniversalClient
	key    string // of the minutes
	self   func() self
	ctx    context.Context // ends with the server; set before the first request
	turn   chan struct{}   // holds a token: its holder may read
	last   atomic.Pointer[reading]
}

func newFleet(r *inspect.Reader, client redis.UniversalClient, who func() self) *fleet {
	f := &fleet{
		watch: r.Watch(), client: client, key: r.Layout().Minutes(), self: who,
		ctx: context.Background(), turn: make(chan struct{}, 1),
	}
	f.turn <- struct{}{}
	return f
}

// The reading is at most fleetEvery old. The error is ctx'.
func (f *fleet) now(ctx context.Context) (*reading, error) {
	n := 0
	if r := f.last.Load(); r != nil {
		if n = r.n; time.Since(r.at) < fleetEvery {
			return r, nil
		}
	}
	return f.after(ctx, n)
}

// after waits for a reading above n. One of the waiting callers reads for all. The error is ctx'.
func (f *fleet) after(ctx context.Context, n int) (*reading, error) {
	select {
	case <-f.turn:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { f.turn <- struct{}{} }()
	last := f.last.Load()
	if last != nil {
		if last.n > n {
			return last, nil
		}
		if !wait.For(ctx, time.Until(last.at.Add(fleetEvery))) {
			return nil, context.Cause(ctx)
		}
	}
	r := f.read(last)
	f.last.Store(r)
	return r, nil
}

// read ends with the server, not with a request: others wait for it too.
func (f *fleet) read(last *reading) *reading {
	ctx, cancel := context.WithTimeout(f.ctx, fleetCall)
	defer cancel()
	r := &reading{n: 1, at: time.Now()}
	f.texts(r)
	if last != nil {
		r.n = last.n + 1
	}
	if r.status, r.err = f.watch.Status(ctx); r.err != nil {
		return r
	}
	r.events = f.watch.Timeline()
	if r.minutes, r.err = f.counted(ctx, last, r.status.Now); r.err != nil {
		return r
	}
	if last == nil || last.err != nil {
		return r // a viewer of the reading before gets everything
	}
	if d, changed := f.difference(last.status, r.status); changed {
		r.changes = encoded(d)
	}
	if found := f.watch.New(); len(found) > 0 {
		r.news = encoded(timelineStatus{Now: r.status.Now, Events: found})
	}
	return r
}

// counted reads the minutes once a few seconds; without the right, or with a key of another type,
// the chart lacks them.
func (f *fleet) counted(ctx context.Context, last *reading, now time.Time) ([]timeline.Minute, error) {
	if last != nil && last.err == nil && last.n%minutesEvery != 0 {
		return last.minutes, nil
	}
	all, err := timeline.ReadMinutes(ctx, f.client, f.key, now)
	if inspect.Refused(err) || redis.HasErrorPrefix(err, "WRONGTYPE ") {
		return nil, nil
	}
	return all, err
}

func (f *fleet) texts(r *reading) {
	r.parts, r.looks = new(sync.Map), new(atomic.Int64)
	r.first = sync.OnceValue(func() []byte {
		return append(event("fleet", encoded(f.whole(r))), event("timeline", encoded(timelineOf(r)))...)
	})
	r.next = sync.OnceValue(func() []byte { return append(event("fleet", r.changes), event("timeline", r.news)...) })
	r.fleetText = sync.OnceValue(func() []byte { return indented(f.whole(r)) })
	r.timelineText = sync.OnceValue(func() []byte { return indented(timelineOf(r)) })
}

func (f *fleet) whole(r *reading) fleetStatus {
	s := f.told(r.status)
	s.Whole = true
	return s
}

func (f *fleet) told(s inspect.Status) fleetStatus {
	who := f.self()
	return fleetStatus{Status: s, Replica: who, Problems: append(s.Problems(), who.problems...)}
}

// difference ignores the passing of time.
func (f *fleet) difference(before, now inspect.Status) (fleetStatus, bool) {
	d := f.told(now)
	d.Instances = []inspect.Instance{}
	was := make(map[string]inspect.Instance, len(before.Instances))
	for _, in := range before.Instances {
		was[in.ID] = in
	}
	for _, in := range now.Instances {
		if b, ok := was[in.ID]; !ok || !b.Same(in) {
			d.Instances = append(d.Instances, in)
		}
		delete(was, in.ID)
	}
	for id := range was {
		d.Gone = append(d.Gone, id)
	}
	changed := len(d.Instances) > 0 || len(d.Gone) > 0 || string(head(before)) != string(head(now))
	return d, changed
}

// head has neither instances nor values that change as time passes.
func head(s inspect.Status) []byte {
	s.Now, s.Instances, s.Witness.LastTick = time.Time{}, nil, time.Time{}
	if s.Leader != nil {
		l := *s.Leader
		l.ExpiresIn = ""
		s.Leader = &l
	}
	return encoded(s)
}

func encoded(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil { // a NaN, or a type unknown to JSON: a fault of the program
		return []byte(`{}`)
	}
	return printable.JSON(text)
}

func (f *fleet) serve(says func(r *reading) []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		r, err := f.now(req.Context())
		if err == nil {
			err = r.away()
		}
		if err != nil {
			failWith(w, err)
			return
		}
		write(w, http.StatusOK, "application/json", says(r))
	}
}

func (r *reading) away() error {
	if r.err == nil {
		return nil
	}
	return fmt.Errorf("console: Redis cannot be asked: %w", r.err)
}

func timelineOf(r *reading) timelineStatus {
	t := timelineStatus{Now: r.status.Now, Events: make([]timeline.Event, 0, len(r.events))}
	for i := len(r.events) - 1; i >= 0; i-- {
		t.Events = append(t.Events, r.events[i])
	}
	return t
}
