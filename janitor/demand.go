package janitor

import (
	"context"
	"errors"
	"fmt"

	"github.com/sourcegraph/conc/pool"
)

// A NotLeaderError says that only the leader can do what was asked.
type NotLeaderError struct {
	Leader string // its instance id; "" if nobody leads
}

func (e *NotLeaderError) Error() string {
	if e.Leader == "" {
		return "janitor: not the leader; nobody leads at present"
	}
	return fmt.Sprintf("janitor: not the leader; %q is", e.Leader)
}

// Sweep runs one pass of each sweep at once, and returns their reports when all have ended. A pass that is
// under way is waited for. It returns a NotLeaderError on a replica that does not lead or ceases to, and
// ctx' cause when that ends first; the passes then end too. A pass that is held or
// failed is no error: its report says so.
func (j *Janitor) Sweep(ctx context.Context, req Request) ([]Report, error) {
	t, err := j.leader(ctx)
	if err != nil {
		return nil, err
	}
	passes := pool.NewWithResults[Report]().WithContext(ctx).WithCancelOnError().WithFirstError()
	for _, l := range t.loops {
		passes.Go(func(ctx context.Context) (Report, error) { return l.demand(ctx, req) })
	}
	reports, err := passes.Wait()
	if errors.Is(err, errTermOver) {
		return nil, j.notLeader(ctx)
	}
	if err != nil {
		return nil, err
	}
	return reports, nil
}

// errTermOver ends the wait of those who asked for a pass.
var errTermOver = errors.New("janitor: the term is over")

// demand asks for a pass and waits for its report.
func (l *loop) demand(ctx context.Context, req Request) (Report, error) {
	req.asked = true
	d := demand{ctx: ctx, req: req, reply: make(chan Report, 1)}
	select {
	case l.demands <- d:
	case <-l.t.done:
		return Report{}, errTermOver
	case <-ctx.Done():
		return Report{}, context.Cause(ctx)
	}
	select {
	case r := <-d.reply: // in any case: what the loop took it answers
		return r, nil
	case <-ctx.Done():
		return Report{}, context.Cause(ctx)
	}
}

// Resign gives up the lease, and returns when the work of the term has ended. This replica does not contend
// for a lease TTL, so that another wins if there is one. NotLeaderError on a replica that does not lead.
func (j *Janitor) Resign(ctx context.Context) error {
	t := j.tenure.Load()
	if t == nil || !t.term.Valid() {
		return j.notLeader(ctx)
	}
	j.elector.Resign(j.cfg.LeaseTTL)
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leader returns the present term, opened, or a NotLeaderError.
func (j *Janitor) leader(ctx context.Context) (*tenure, error) {
	t := j.tenure.Load()
	if t == nil || !t.term.Valid() {
		return nil, j.notLeader(ctx)
	}
	select {
	case <-t.opened:
		return t, nil
	case <-t.done:
		return nil, j.notLeader(ctx)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// notLeader names the leader, as Redis has it; or says why it cannot.
func (j *Janitor) notLeader(ctx context.Context) error {
	holder, err := j.elector.Holder(ctx)
	if err != nil {
		return errors.Join(&NotLeaderError{}, err)
	}
	return &NotLeaderError{Leader: holder.Instance}
}
