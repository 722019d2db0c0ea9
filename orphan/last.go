package orphan

import (
	"context"
	"time"
)

// slowLook is a fraction of evidenceFor and of leastEvidence.
const slowLook = 500 * time.Millisecond

// clocks are the times of the servers, by address.
type clocks map[string]time.Time

// lookLast is the look before a delete. Its signs are asked again after a large value that took
// long to read: otherwise the deleting script would always refuse that value.
func (x *pass) lookLast(ctx context.Context, page []*candidate) ([]*finding, clocks, error) {
	before, err := x.clocks(ctx)
	if err != nil {
		return nil, nil, err
	}
	found, err := x.look(ctx, x.Pass, x.set.c.Source, x.home, page)
	if err != nil {
		return nil, nil, err
	}
	after, err := x.clocks(ctx)
	if err != nil || after[x.home.addr].Sub(before[x.home.addr]) < slowLook {
		return found, before, err
	}
	return found, after, x.askAgain(ctx, found)
}

// askAgain lets the looks count from now, unless a sign is alive.
func (x *pass) askAgain(ctx context.Context, found []*finding) error {
	var page []*candidate
	var of []*finding
	for _, f := range found {
		if f.verdict == condemned {
			page, of = append(page, f.itself()), append(of, f)
		}
	}
	if len(page) == 0 {
		return nil
	}
	again, err := x.glance(ctx, x.Pass, x.set.c.Source, x.home, page)
	if err != nil {
		return err
	}
	for i, g := range again {
		if g.verdict == "" {
			of[i].at = g.at
		} else {
			of[i].verdict, of[i].why = g.verdict, g.why
		}
	}
	return nil
}

func (x *pass) clocks(ctx context.Context) (clocks, error) {
	all := make(clocks, len(x.servers.masters))
	for _, s := range x.servers.masters {
		at, err := now(ctx, x.Pass, s)
		if err != nil {
			return nil, err
		}
		all[s.addr] = at
	}
	return all, nil
}
