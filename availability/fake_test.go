package availability

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// fake is a Source in memory, faithful as far as the mirror can see: rows have locks and
// versions, changes become visible when they are committed, and the feed identifies transactions
// by numbers.
type fake struct {
	// fault is called before each operation, and again, as "<operation> committed", after a change
	// is committed and before its reply arrives. The caller gets its error.
	fault hook[func(op string) error]
	// held is called in each transaction while its rows are locked.
	held hook[func()]

	unseen []string // what Unseen returns
	// confirmed is called when an auto-offline is confirmed, and not committed yet.
	confirmed hook[func()]
	skew      time.Duration // of its clock
	clock     Clock         // what is known of it

	busy []string // mitras whose rows somebody holds: AutoOffline leaves them

	mu       sync.Mutex
	locks    map[string]*sync.Mutex
	rows     map[string]row
	base     map[string]State // the base tables' state, where it differs
	sessions map[string]Session
	settings Settings
	xid      uint64
	life     string
	flips    []flip
	calls    map[string]int
	fleets   map[string]time.Duration // pause between copies of heartbeats
}

// hook is changed by tests while a mirror runs.
type hook[F any] struct{ f atomic.Pointer[F] }

func (h *hook[F]) set(f F) { h.f.Store(&f) }
func (h *hook[F]) get() F  { return *h.f.Load() }

type row struct {
	State
	xid uint64
}

// flip is an auto-offline that was committed.
type flip struct {
	Versioned
	at time.Time
}

func newFake(states ...State) *fake {
	f := &fake{
		locks: map[string]*sync.Mutex{}, rows: map[string]row{}, base: map[string]State{},
		sessions: map[string]Session{},
		settings: Settings{MaxCustomers: 3, StaleAfter: time.Minute, RequirePing: true, PingInterval: 10 * time.Second},
		xid:      1, calls: map[string]int{}, fleets: map[string]time.Duration{},
	}
	f.mended()
	f.held.set(func() {})
	f.confirmed.set(func() {})
	for _, s := range states {
		f.put(s)
	}
	return f
}

// at has an operation meet a function, which it fails with.
func (f *fake) at(op string, do func() error) {
	f.fault.set(func(asked string) error {
		if asked != op {
			return nil
		}
		return do()
	})
}

func (f *fake) mended() { f.fault.set(func(string) error { return nil }) }

// now is its clock.
func (f *fake) now() time.Time { return time.Now().Add(f.skew) }

// put makes a state as it is, without a version of its own.
func (f *fake) put(s State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.Version = max(s.Version, 1)
	f.store(s, f.xid)
	f.xid++
}

func (f *fake) store(s State, xid uint64) {
	f.rows[s.ID] = row{s, xid}
}

func (f *fake) state(id string) State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rows[id].State
}

func (f *fake) asked(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

func (f *fake) begin(op string) error {
	f.mu.Lock()
	f.calls[op]++
	f.mu.Unlock()
	return f.fault.get()(op)
}

// tx runs a change of some rows. Names are what is locked beside them. change has the rows that
// there are, and returns those that it changed: each takes a version. Before the commit, confirm is
// asked.
func (f *fake) tx(op string, ids, names []string, change func(rows map[string]State) ([]State, error),
	confirm func() error,
) ([]State, error) {
	if err := f.begin(op); err != nil {
		return nil, err
	}
	all := slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(ids), names...))))
	for _, name := range all {
		f.mu.Lock()
		lock := f.locks[name]
		if lock == nil {
			lock = &sync.Mutex{}
			f.locks[name] = lock
		}
		f.mu.Unlock()
		lock.Lock()
		defer lock.Unlock()
	}
	f.mu.Lock()
	rows := map[string]State{}
	for _, id := range ids {
		if r, ok := f.rows[id]; ok {
			rows[id] = r.State
		}
	}
	changed, err := change(rows)
	f.mu.Unlock()
	f.held.get()()
	if err == nil && confirm != nil {
		err = confirm()
	}
	f.mu.Lock()
	if err == nil {
		for _, s := range changed {
			s.Version = f.rows[s.ID].Version + 1
			f.store(s, f.xid)
			rows[s.ID] = s
		}
	}
	f.xid++
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := f.fault.get()(op + " committed"); err != nil {
		return nil, err
	}
	return slices.SortedFunc(maps.Values(rows), func(a, b State) int { return cmp.Compare(a.ID, b.ID) }), nil
}

func (f *fake) Clock() *Clock { return &f.clock }

func (f *fake) Feed(_ context.Context, since Cursor) ([]State, Cursor, error) {
	if err := f.begin("Feed"); err != nil {
		return nil, since, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var states []State
	for _, r := range f.rows {
		if since.Xmin > 0 && (r.xid >= since.Xmin || since.Life != f.life) {
			states = append(states, r.State)
		}
	}
	f.clock.Learn(time.Now(), f.now())
	return states, Cursor{Xmin: f.xid, Life: f.life}, nil
}

func (f *fake) Page(_ context.Context, after string, limit int) ([]State, error) {
	if err := f.begin("Page"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var states []State
	for _, id := range slices.Sorted(maps.Keys(f.rows)) {
		if id > after && len(states) < limit {
			states = append(states, f.rows[id].State)
		}
	}
	return states, nil
}

func (f *fake) States(_ context.Context, ids []string) ([]State, error) {
	if err := f.begin("States"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var states []State
	for _, id := range ids {
		if r, ok := f.rows[id]; ok {
			states = append(states, r.State)
		}
	}
	return states, nil
}

func (f *fake) Repair(context.Context) ([]Repaired, error) {
	f.mu.Lock()
	base := maps.Clone(f.base)
	f.mu.Unlock()
	ids := slices.Sorted(maps.Keys(base))
	var repaired []Repaired
	_, err := f.tx("Repair", ids, nil, func(rows map[string]State) ([]State, error) {
		var changed []State
		for _, id := range ids {
			was, is := rows[id], base[id]
			is.Version = was.Version
			repaired = append(repaired, Repaired{id, fmt.Sprint(was), fmt.Sprint(is)})
			changed = append(changed, is)
			delete(f.base, id)
		}
		return changed, nil
	}, nil)
	return repaired, err
}

func (f *fake) Unseen(context.Context) ([]string, error) {
	if err := f.begin("Unseen"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unseen, nil
}

func (f *fake) Outbid(_ context.Context, those []Versioned) ([]State, error) {
	if err := f.begin("Outbid"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	var states []State
	for _, v := range those {
		s := f.rows[v.ID].State
		if s.Version <= v.Version {
			s.Version = v.Version + 1
			f.store(s, f.xid)
		}
		states = append(states, s)
	}
	f.xid++
	f.mu.Unlock()
	return states, f.fault.get()("Outbid committed")
}

func (f *fake) SetOnline(_ context.Context, id string, online bool) (State, error) {
	return one(f.tx("SetOnline", []string{id}, nil, func(rows map[string]State) ([]State, error) {
		s, ok := rows[id]
		switch {
		case !ok:
			return nil, ErrNotFound
		case online && !s.Active:
			return nil, ErrInactive
		case !online && !s.Online && s.Judged.IsZero():
			return nil, nil
		}
		s.Online, s.Judged = online, time.Time{}
		if online {
			s.Seen = f.now()
		}
		return []State{s}, nil
	}, nil))
}

func (f *fake) SetActive(_ context.Context, id string, active bool) (State, error) {
	return one(f.tx("SetActive", []string{id}, nil, func(rows map[string]State) ([]State, error) {
		s, ok := rows[id]
		if !ok {
			return nil, ErrNotFound
		}
		s.Active = active
		return []State{s}, nil
	}, nil))
}

func one(states []State, err error) (State, error) {
	if err != nil {
		return State{}, err
	}
	return states[0], nil
}

// room is why a mitra cannot take a session; nil: it can.
func room(s State, known bool, most int) error {
	switch {
	case !known:
		return ErrNotFound
	case !s.Active:
		return ErrInactive
	case s.Sessions >= most:
		return ErrFull
	}
	return nil
}

func runs(s Session) bool { return s.Status == "active" || s.Status == "pending_payment" }

// move gives a session another mitra, another status, or both.
func (f *fake) move(op, session, mitra, status string, most int) (s Session, _ []State, _ error) {
	f.mu.Lock()
	from := f.sessions[session].MitraID
	f.mu.Unlock()
	to := cmp.Or(mitra, from)
	ids := slices.DeleteFunc([]string{from, to}, func(id string) bool { return id == "" })
	states, err := f.tx(op, ids, []string{session}, func(rows map[string]State) (changed []State, _ error) {
		was := f.sessions[session]
		if was.MitraID != from || runs(was) == (op == "Accept") || op == "Accept" && was.Status != "searching" {
			return nil, ErrTaken
		}
		if mitra != "" {
			m, known := rows[mitra]
			if err := room(m, known, most); err != nil {
				return nil, err
			}
		}
		s = was
		s.MitraID, s.Status = to, cmp.Or(status, was.Status)
		f.sessions[session] = s
		for _, id := range slices.Compact(ids) {
			row := rows[id]
			row.Sessions += bit(runs(s) && to == id) - bit(runs(was) && from == id)
			if row != rows[id] {
				changed = append(changed, row)
			}
		}
		return changed, nil
	}, nil)
	return s, states, err
}

func (f *fake) Accept(_ context.Context, session, mitra string, most int) (Session, []State, error) {
	return f.move("Accept", session, mitra, "active", most)
}

func (f *fake) End(_ context.Context, session, status string) (Session, []State, error) {
	return f.move("End", session, "", status, 0)
}

func (f *fake) Extend(_ context.Context, session string, paid bool) (Session, []State, error) {
	return f.move("Extend", session, "", map[bool]string{true: "active", false: "pending_payment"}[paid], 0)
}

func (f *fake) Reroute(_ context.Context, session, mitra string, most int) (Session, []State, error) {
	return f.move("Reroute", session, mitra, "", most)
}

func (f *fake) Available(_ context.Context, cutoff time.Time, most, limit int) ([]State, error) {
	if err := f.begin("Available"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var states []State
	for _, id := range slices.Sorted(maps.Keys(f.rows)) {
		s := f.rows[id].State
		if s.Online && s.Active && s.Sessions < most && (cutoff.IsZero() || !s.Seen.Before(cutoff)) {
			states = append(states, s)
		}
	}
	slices.SortStableFunc(states, func(a, b State) int { return cmp.Compare(a.Sessions, b.Sessions) })
	if limit > 0 && len(states) > limit {
		states = states[:limit]
	}
	return states, nil
}

func (f *fake) Announce(_ context.Context, fleet string, copies time.Duration) (time.Duration, error) {
	if err := f.begin("Announce"); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fleets[fleet] = copies
	var longest time.Duration
	for name, each := range f.fleets {
		if name != fleet {
			longest = max(longest, each)
		}
	}
	return longest, nil
}

func (f *fake) CountOnline(context.Context) (n int, err error) {
	if err := f.begin("CountOnline"); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.rows {
		n += bit(r.working())
	}
	return n, nil
}

func (f *fake) Settings(context.Context) (Settings, error) {
	if err := f.begin("Settings"); err != nil {
		return Settings{}, err
	}
	f.mu.Lock()
	read := f.settings
	f.mu.Unlock()
	return read, f.fault.get()("Settings committed")
}

func (f *fake) PutSetting(_ context.Context, name string, value any) error {
	if err := f.begin("PutSetting"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch name {
	case "max_customers_per_mitra":
		f.settings.MaxCustomers = value.(int)
	case "require_ping":
		f.settings.RequirePing = value.(bool)
	case "stale_after_seconds":
		f.settings.StaleAfter = time.Duration(value.(int)) * time.Second
	default:
		return fmt.Errorf("no setting %q", name)
	}
	return nil
}
