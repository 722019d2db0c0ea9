package guard

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/replies"
)

var (
	fieldsScript = redis.NewScript(lua("fields"))
	pageScript   = redis.NewScript(lua("page"))
)

// Values returns the first 1024 bytes of each field of a hash, nil where there is none.
func Values(ctx context.Context, client redis.UniversalClient, key string, fields ...string) ([]any, error) {
	args := make([]any, len(fields))
	for i, f := range fields {
		args[i] = f
	}
	found, err := fieldsScript.RunRO(ctx, client, []string{key}, args...).Slice()
	if err == nil && len(found) != len(fields) {
		err = fmt.Errorf("guard: %d fields in the answer, want %d", len(found), len(fields))
	}
	return found, err
}

// ErrTooLarge is wrapped by the error of a call whose reply the client refuses to read, for example
// since its connections limit what they read.
var ErrTooLarge = replies.ErrTooLarge

const (
	// longestName is the most bytes of an element that page.lua reads, smallPage its largest COUNT.
	longestName = 1024
	smallPage   = 1000
)

// A Page is one page of a scan.
type Page struct {
	Items []string // of a hash: field, value, ...
	Next  uint64   // cursor; 0: it was the last page
	Left  int      // elements that were too long to be read
}

// HScan reads a page of a hash. If the client refuses the page as [ErrTooLarge], a script reads
// fewer elements, and leaves out those longer than any name.
func HScan(ctx context.Context, c redis.UniversalClient, key string, cursor uint64, count int64) (Page, error) {
	items, next, err := c.HScan(ctx, key, cursor, "", count).Result()
	return readPage(ctx, c, "HSCAN", key, cursor, count, Page{Items: items, Next: next}, err)
}

// SScan is HScan of a set.
func SScan(ctx context.Context, c redis.UniversalClient, key string, cursor uint64, count int64) (Page, error) {
	items, next, err := c.SScan(ctx, key, cursor, "", count).Result()
	return readPage(ctx, c, "SSCAN", key, cursor, count, Page{Items: items, Next: next}, err)
}

// Paging is how a scan reads its pages. The zero Paging reads smallPage elements at once.
type Paging struct {
	Size func() int // the next page's COUNT, asked inside its call
	Call func(ctx context.Context, read func(ctx context.Context) error) error
}

// A Scan reads a key page by page. An error is the last thing that it yields. Elements may repeat.
type Scan func(context.Context, redis.UniversalClient, string, Paging) iter.Seq2[Page, error]

// Fields reads a hash with HScan.
func Fields(ctx context.Context, c redis.UniversalClient, key string, by Paging) iter.Seq2[Page, error] {
	return scan(ctx, c, key, by, HScan)
}

// Members reads a set with SScan.
func Members(ctx context.Context, c redis.UniversalClient, key string, by Paging) iter.Seq2[Page, error] {
	return scan(ctx, c, key, by, SScan)
}

func scan(ctx context.Context, c redis.UniversalClient, key string, by Paging,
	next func(context.Context, redis.UniversalClient, string, uint64, int64) (Page, error),
) iter.Seq2[Page, error] {
	return func(yield func(Page, error) bool) {
		var page Page
		read := func(ctx context.Context) (err error) {
			size := smallPage
			if by.Size != nil {
				size = by.Size()
			}
			page, err = next(ctx, c, key, page.Next, int64(size))
			return err
		}
		for first := true; first || page.Next != 0; first = false {
			var err error
			if by.Call != nil {
				err = by.Call(ctx, read)
			} else {
				err = read(ctx)
			}
			if !yield(page, err) || err != nil {
				return
			}
		}
	}
}

func readPage(
	ctx context.Context, c redis.UniversalClient, command, key string, cursor uint64, count int64, read Page, err error,
) (Page, error) {
	if !errors.Is(err, ErrTooLarge) {
		return read, err
	}
	out, failed := pageScript.RunRO(ctx, c, []string{key}, command, cursor, min(count, smallPage), longestName).Slice()
	if failed != nil || len(out) != 3 {
		return Page{}, err // the first error is the cause
	}
	next, _ := out[0].(string)
	left, _ := out[1].(int64)
	items, _ := out[2].([]any)
	p := Page{Left: int(left), Items: make([]string, 0, len(items))}
	for _, item := range items {
		text, _ := item.(string)
		p.Items = append(p.Items, text)
	}
	if p.Next, failed = strconv.ParseUint(next, 10, 64); failed != nil {
		return Page{}, err
	}
	return p, nil
}

// IsFormer reports that a former primary answered, or a server that was set back: it lacks this
// process' newest heartbeat.
func IsFormer(err error) bool { return redis.HasErrorPrefix(err, "READONLY former primary") }

// A Reading is what a leader judges silence by. Times are in ms, by the server's clock.
type Reading struct {
	Now, Since, RefusedAt int64             // of the witness; 0: unknown
	Records               map[string]string // instance -> record, see package doubt
	Roster                []string
	// RecordsErr and RosterErr are the server's refusals to read either, of a key of another type
	// for example. It then counts as empty.
	RecordsErr, RosterErr error
}

// readWhole is the most records, or members of the roster, that are read in one answer.
const readWhole = 1000

// Read reads the evidence, in one round trip unless there are more than a thousand instances.
// newest is as in Evidence.
func (g *Guard) Read(ctx context.Context, newest int64) (r Reading, err error) {
	keys := []string{g.layout.Beats(), g.layout.Roster(), g.layout.Witness()}
	out, err := readingScript.Run(ctx, g.client, keys, g.leader, newest, readWhole).Slice()
	if err == nil && len(out) != 5 {
		err = fmt.Errorf("%d values in the answer", len(out))
	}
	if err != nil {
		return r, fmt.Errorf("guard: read records: %w", err)
	}
	r.Now, _ = out[0].(int64)
	r.Since, _ = out[1].(int64)
	r.RefusedAt, _ = out[2].(int64)
	records, err := g.whole(ctx, out[3], keys[0], Fields, &r.RecordsErr)
	if err != nil {
		return r, fmt.Errorf("guard: read records: %w", err)
	}
	r.Records = make(map[string]string, len(records)/2)
	for i := 1; i < len(records); i += 2 {
		r.Records[records[i-1]] = records[i]
	}
	if r.Roster, err = g.whole(ctx, out[4], keys[1], Members, &r.RosterErr); err != nil {
		return r, fmt.Errorf("guard: read roster: %w", err)
	}
	return r, nil
}

func (g *Guard) whole(ctx context.Context, found any, key string, scan Scan, refused *error) (all []string, err error) {
	switch found := found.(type) {
	case []any:
		for _, v := range found {
			text, _ := v.(string)
			all = append(all, text)
		}
	case string:
		*refused = errors.New(found)
	default:
		for page, err := range scan(ctx, g.client, key, Paging{}) {
			if err != nil {
				return nil, err
			}
			all = append(all, page.Items...)
		}
	}
	return all, nil
}

// A Change replaces an owner's record, "" for none, if that is still Was.
type Change struct{ Owner, Was, Is string }

// Write stores records, of owners that write none themselves, and deletes those that prove nothing
// more. It returns the owners whose records had changed; FENCED: nothing was written.
func (g *Guard) Write(ctx context.Context, l Lease, changes []Change) (v Verdict, changed []string, err error) {
	aside := g.layout.BeatsAside(uint64(time.Now().UnixMicro()))
	args := make([]any, 0, 1+3*len(changes))
	args = append(args, l.Token)
	for _, c := range changes {
		args = append(args, c.Owner, c.Was, c.Is)
	}
	out, err := recordsScript.Run(ctx, g.control, []string{g.layout.Lease(), g.layout.Beats(), aside}, args...).StringSlice()
	if err == nil && len(out) == 0 {
		err = errors.New("empty answer")
	}
	if err != nil {
		return "", nil, fmt.Errorf("guard: write records: %w", err)
	}
	return Verdict(out[0]), out[1:], nil
}

// A Body is the part of a guarded script that judges a batch's items again and deletes them.
type Body struct {
	script *redis.Script
}

// NewBody appends Lua to the guard; package janitor documents what it must do.
func NewBody(body string) *Body {
	return &Body{redis.NewScript(listenLua + lua("former", "guard") + body)}
}

// EvictEntries is the body of a batch that evicts entries of the registry: Items are ids, Owner is
// the dead instance, and Keys are those of EntryKeys; without the second one the index is left
// alone. So is an unusable index; Answer.Reason then has the error.
var EvictEntries = NewBody(lua("evict"))

// EntryKeys returns the Keys of a batch whose Body is EvictEntries.
func EntryKeys(l Layout, owner string) []string { return []string{l.Registry(), l.Devices(owner)} }
