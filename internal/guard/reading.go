package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

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
