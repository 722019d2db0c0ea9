package proof

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/janitor"
)

// A Mark is since when something has been condemned, and what it was then.
type Mark struct {
	At    time.Time // first look of the chain, by the server's clock
	Chain int64
	Print string
}

func (m Mark) text() string {
	return fmt.Sprintf("%d %d %s", m.At.UnixMilli(), m.Chain, m.Print)
}

// ParseMark reads a mark as it is in Redis, or returns false for a text that is none.
func ParseMark(text string) (m Mark, ok bool) {
	var ms int64
	if n, _ := fmt.Sscanf(text, "%d %d %s", &ms, &m.Chain, &m.Print); n < 3 {
		return Mark{}, false
	}
	m.At = time.UnixMilli(ms)
	return m, m.Chain != 0
}

// A Verdict of a look.
type Verdict int

// The verdicts.
const (
	Kept      Verdict = iota // for another reason than a sign of life
	Alive                    // it shows a sign of life
	Condemned                // it shows none
)

// Found is what a look found of one thing.
type Found struct {
	Name  string
	Print string    // what it is, and what judged it: another one is another thing
	At    time.Time // of the look, by the server's clock
	Verdict
}

// Look records one page. Things that are not condemned lose their marks first.
func (b *Book) Look(ctx context.Context, found []Found) error {
	var unset []string
	for _, f := range found {
		delete(b.unseen, f.Name)
		m, has := b.marks[f.Name]
		if f.Verdict == Alive {
			b.alive++
		}
		switch stands := m.Chain == b.chain && m.Print == f.Print && !m.At.After(f.At); {
		case f.Verdict != Condemned && has:
			unset = append(unset, f.Name)
			b.drop(f.Name)
		case f.Verdict != Condemned || has && stands:
		default:
			// Of another chain, it is not new; but while nobody looked it may have been alive.
			if !has || b.idle && m.Chain != b.chain {
				b.newly++
			}
			if has && m.Chain == b.chain { // it changed, and others may draw for its place
				unset = append(unset, f.Name)
				b.drop(f.Name)
			}
			b.wants.add(f.Name, Mark{f.At, b.chain, f.Print}, b.o.Most, b.o.Bytes)
		}
	}
	return b.Unmark(ctx, unset...)
}

// Unmark takes marks away.
func (b *Book) Unmark(ctx context.Context, names ...string) error {
	for _, name := range names {
		b.drop(name)
	}
	if b.p.DryRun() || len(names) == 0 {
		return nil
	}
	if err := b.write(ctx, b.o.Marks, 0, nil, names); err != nil {
		b.Broken(ctx)
		return err
	}
	return nil
}

// Broken ends the chain: what a look found could not be recorded.
func (b *Book) Broken(ctx context.Context) { Break(ctx, b.p, b.o.State, b.o.Memory) }

// Break ends the chain for a pass that looks at nothing. Where that cannot be written, this process
// remembers it, and for others the last look gets too old by itself.
func Break(ctx context.Context, p Pass, state string, m *Memory) {
	if p.DryRun() {
		return
	}
	m.broken = true
	_ = Write(ctx, p, state, 0, nil, []string{lookedField})
}

// Looked ends a look at everything marked, or if full at everything that there is. It marks what is
// newly condemned, and forgets marks of what a full look has not met. If more than half of at least
// 20 fell since the last full look, its error is a HeldError; they are marked all the same.
// unmarked is how many found no place.
func (b *Book) Looked(ctx context.Context, full bool) (unmarked int, err error) {
	given, lost, unmarked := b.give()
	if b.p.DryRun() {
		return unmarked, nil
	}
	if full {
		for name := range b.unseen {
			lost = append(lost, name)
		}
	}
	if err := b.Unmark(ctx, lost...); err != nil {
		return unmarked, err
	}
	held := b.wave(ctx, full, unmarked) // before the marks, which a later pass no longer takes for new
	if _, is := errors.AsType[*janitor.HeldError](held); held != nil && !is {
		return unmarked, held
	}
	if err := b.write(ctx, b.o.Marks, 0, given, nil); err != nil {
		return unmarked, err
	}
	end := &Book{p: b.p, o: b.o}
	if err := end.readState(ctx); err != nil {
		return unmarked, err
	}
	at := end.now
	if end.chain != b.chain || b.o.Memory.stepped(at) {
		return unmarked, errClock
	}
	b.state[lookedField] = fmt.Sprintf("%d %d", at.UnixMilli(), b.chain)
	err = b.write(ctx, b.o.State, b.chain, map[string]string{lookedField: b.state[lookedField]}, nil)
	if err == nil {
		b.o.Memory.broken, b.ended = false, ""
		err = held
	}
	return unmarked, err
}

var errClock = errors.New("proof: the server's clock was set, or its state lost, during the pass")

// wave judges how many are new. Those that the last full look could not mark are not; only their
// number is known. Neither known things nor those that no sign of life decides about could have
// fallen.
func (b *Book) wave(ctx context.Context, full bool, unmarked int) error {
	if !full {
		return nil
	}
	before := b.Unmarked()
	if unmarked != before {
		if err := b.Note(ctx, map[string]string{unmarkedField: strconv.Itoa(unmarked)}); err != nil {
			return err
		}
	}
	newly := max(0, b.newly-before)
	return b.Fell(ctx, newly, b.alive+newly)
}

// Unmarked is how many the last full look could not mark.
func (b *Book) Unmarked() int {
	n, _ := strconv.Atoi(b.state[unmarkedField])
	return n
}

func (b *Book) keep(name string, m Mark) {
	if _, has := b.marks[name]; !has {
		b.bytes += len(name)
	}
	b.marks[name] = m
}

func (b *Book) drop(name string) {
	if _, has := b.marks[name]; has {
		b.bytes -= len(name)
		delete(b.marks, name)
	}
}

// give shares out the places that are free. lost are marks of another chain that get no new one.
func (b *Book) give() (given map[string]string, lost []string, without int) {
	given = map[string]string{}
	had := map[string]bool{}
	for name := range b.wants.all {
		_, had[name] = b.marks[name]
		b.drop(name)
	}
	for name, m := range b.wants.all { // in no order
		switch {
		case len(b.marks) < b.o.Most && (b.bytes+len(name) <= b.o.Bytes || len(b.marks) == 0):
			b.keep(name, m)
			given[name] = m.text()
		case had[name]:
			lost = append(lost, name)
		}
	}
	return given, lost, b.wants.seen - len(given)
}

// Marked returns the names of everything marked.
func (b *Book) Marked() []string {
	names := make([]string, 0, len(b.marks))
	for name := range b.marks {
		names = append(names, name)
	}
	return names
}

// Mark returns what stands for a name, whatever its chain.
func (b *Book) Mark(name string) Mark { return b.marks[name] }

// Since returns for how long a thing had been condemned at a time of the server's clock. It is
// false if it has no mark of this chain.
func (b *Book) Since(name string, at time.Time) (time.Duration, bool) {
	m, has := b.marks[name]
	return at.Sub(m.At), has && m.Chain == b.chain
}

// Proof is what a guarded body checks with Lua's ripe: times in ms.
type Proof struct {
	Name    string `json:"name"`
	Mark    string `json:"mark"`
	Chain   string `json:"chain"`
	Grace   int64  `json:"grace"`
	Since   int64  `json:"since"`
	Looked  int64  `json:"looked"`
	Expires int64  `json:"expires"`
}

// Proof of a thing that was looked at again, at a time of the server's clock. Its grace is over.
func (b *Book) Proof(name string, grace time.Duration, looked time.Time) Proof {
	return Proof{
		Name: name, Mark: b.marks[name].text(), Chain: strconv.FormatInt(b.chain, 10),
		Grace: grace.Milliseconds(), Since: b.since, Looked: looked.UnixMilli(),
		Expires: max(longest(b.o.Apart), leastEvidence).Milliseconds(),
	}
}

// wants are condemned without a mark of this chain: a sample of them if there are too many, since
// in SCAN's order the same names would always win.
type wants struct {
	all         map[string]Mark
	bytes, seen int
}

func (w *wants) add(name string, m Mark, most, bytes int) {
	if _, again := w.all[name]; again { // SCAN returned it twice
		return
	}
	w.seen++
	if full := len(w.all) >= most || w.bytes+len(name) > bytes; full && rand.IntN(w.seen) >= len(w.all) {
		return
	}
	w.all[name] = m
	w.bytes += len(name)
	for out := range w.all { // in no order
		if len(w.all) <= most && (w.bytes <= bytes || len(w.all) == 1) {
			return
		}
		delete(w.all, out)
		w.bytes -= len(out)
	}
}

// A Caller paces calls to Redis: a janitor.Pass, or a tool's own.
type Caller interface {
	// Call runs one call to Redis at the caller's pace.
	Call(ctx context.Context, f func(ctx context.Context) error) error
	// Client is for use within Call.
	Client() redis.UniversalClient
	// PageSize is the most that one page of a scan should have.
	PageSize() int
}

// A Field of a hash, with its value.
type Field struct{ Name, Value string }

const (
	firstPage = 16
	pageBytes = 256 << 10 // what a page should have
)

// Fields reads a hash page by page, however long its names are. As with HSCAN, fields may repeat.
func Fields(ctx context.Context, c Caller, key string) iter.Seq2[Field, error] {
	return func(yield func(Field, error) bool) {
		var size Pages
		by := guard.Paging{Size: func() int { return int(size.Next(c.PageSize())) }, Call: c.Call}
		for page, err := range guard.Fields(ctx, c.Client(), key, by) {
			if err != nil {
				yield(Field{}, fmt.Errorf("proof: %s: %w", key, err))
				return
			}
			size.Read(page.Items)
			for i := 0; i+1 < len(page.Items); i += 2 {
				if !yield(Field{page.Items[i], page.Items[i+1]}, nil) {
					return
				}
			}
		}
	}
}

// Pages chooses the COUNT of a scan by the bytes of earlier pages.
type Pages struct{ count int64 }

// Next returns the COUNT for the next page.
func (p *Pages) Next(most int) int64 {
	if p.count == 0 {
		p.count = firstPage
	}
	return min(p.count, int64(most))
}

// Read takes a page into account.
func (p *Pages) Read(page []string) {
	bytes := int64(1)
	for _, text := range page {
		bytes += int64(len(text)) + 16
	}
	p.count = max(1, min(4*p.count, p.count*pageBytes/bytes))
}
