package janitor

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
	"github.com/rollcall-redis/rollcall/internal/outbox"
	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/internal/timeline"
)

const mostNoted = 1000

var errNotesDropped = errors.New("janitor: timeline events dropped while Redis was away")

// notes are events for people. They are written in the background: add never waits, and events that
// cannot be written are dropped.
type notes struct {
	client redis.UniversalClient
	key    string
	by     string
	writes *streak.Streak
	*outbox.Outbox[timeline.Event]
}

func newNotes(client redis.UniversalClient, key, by string, log *slog.Logger) *notes {
	n := &notes{client: client, key: key, by: by, writes: streak.New(log,
		"cannot write the timeline; the page will lack events", "writing the timeline again",
		"key", key, "allow", "XADD")}
	n.Outbox = outbox.New(outbox.Config[timeline.Event]{Write: n.write, Within: notesTimeout, Most: mostNoted})
	return n
}

func (n *notes) add(e timeline.Event) {
	e.By = n.by
	if !n.Add(e) {
		n.writes.Note(errNotesDropped)
	}
}

const notesTimeout, notesLast = 2 * time.Second, 200 * time.Millisecond

// write's other errors mean that Redis is down or full, which the ticks report.
func (n *notes) write(ctx context.Context, due []timeline.Event) error {
	err := timeline.Add(ctx, n.client, n.key, due...)
	if err == nil || lasting(err) {
		n.writes.Note(err)
		return nil
	}
	return err
}

func lasting(err error) bool { return notAllowed(err) || redis.HasErrorPrefix(err, "WRONGTYPE ") }

// fallen returns whom the timeline has as dead or gone. If it cannot be read, that is nobody.
func (n *notes) fallen(ctx context.Context) map[string]bool {
	ctx, cancel := context.WithTimeout(ctx, notesTimeout)
	defer cancel()
	events, _ := timeline.Read(ctx, n.client, n.key, "0-0")
	fallen := map[string]bool{}
	for _, e := range events {
		switch e.Kind {
		case timeline.Death, timeline.Left:
			fallen[e.Instance] = true
		case timeline.Alive:
			fallen[e.Instance] = false
		}
	}
	return fallen
}

// Only listen calls noteHold.
func (j *Janitor) noteHold(leading bool) {
	h := j.listener.heard()
	switch w := h.witness; {
	case !leading:
		j.holdNoted = nil
	case h.err != nil || h.at.IsZero():
	case w.HeldFor > 0:
		if j.holdNoted == nil || j.holdNoted.Reason != w.Reason {
			j.notes.add(timeline.Event{
				Kind: timeline.Hold, Reason: w.Reason, At: w.LastHold, Found: j.holdNoted == nil,
			})
		}
		j.holdNoted = &timeline.Event{Kind: timeline.HoldOver, Reason: w.Reason, At: w.Now.Add(w.HeldFor)}
	case j.holdNoted == nil: // a term begins; the hold may have ended before it
		j.holdNoted = &timeline.Event{}
		if w.Reason != "" {
			j.notes.add(timeline.Event{
				Kind: timeline.HoldOver, Reason: w.Reason, At: w.Since.Add(j.timing.Grace()), Found: true,
			})
		}
	case j.holdNoted.Reason != "":
		j.notes.add(*j.holdNoted)
		j.holdNoted = &timeline.Event{}
	}
}

// noteOwners notes who fell silent, came or left since the last reading, nil at first. A new leader
// notes and counts those whom no earlier one has noted.
func (o *owners) noteOwners(ctx context.Context, before, now *reading) {
	var noted map[string]bool
	if before == nil {
		noted = o.j.notes.fallen(ctx)
	}
	note := func(kind timeline.Kind, id string) {
		if noted[id] {
			return
		}
		if kind == timeline.Death {
			o.j.metrics.died.Inc()
		}
		o.j.notes.add(timeline.Event{Kind: kind, Instance: id, Found: before == nil})
	}
	silent := func(x *owner) bool { return x != nil && (x.liveness == Dead || x.liveness == Doubted) }
	for id, x := range now.owners {
		var was *owner
		if before != nil {
			was = before.owners[id]
		}
		switch lived := was != nil && was.listed && was.liveness == Alive; {
		case x.State == doubt.Bye:
			if lived || x.listed && was == nil {
				note(timeline.Left, id)
			}
		case !x.listed:
		case x.liveness == Alive && before != nil && (was == nil || silent(was)):
			note(timeline.Alive, id)
		case silent(x) && !silent(was):
			note(timeline.Death, id)
		}
	}
}

const (
	// logLeast is the number of log records that always stay: enough for every outstanding reply.
	logLeast = 100
	// recordItem and recordRest estimate a record's size, in bytes, if Redis does not report it:
	// per item of a full batch, and the rest. An id of 15 digits takes 18; longer items make
	// the log larger than it should be.
	recordItem, recordRest = 32, 512

	// Status lists these if trimming is not allowed something.
	checkLogSize = "log_size"
	checkLogTrim = "log_trim"
)

func (c Config) logRecords() int64 {
	return max(logLeast, c.LogBytes/(recordItem*int64(c.DeleteBatch)+recordRest))
}

func trimStreaks(log *slog.Logger, records int64) (size, trim *streak.Streak) {
	size = streak.New(log, "cannot read the size of the eviction log; trimming it by number of records",
		"trimming the eviction log by size again", "records", records, "allow", "MEMORY USAGE, XLEN")
	trim = streak.New(log, "cannot trim the eviction log; it grows without bound",
		"trimming the eviction log again", "allow", "XTRIM")
	return size, trim
}

var errNotTrimmed = errors.New("janitor: this user may not, or the server cannot")

// trimLog leaves the newest LogBytes. A missing right does not fail the pass, whose work is done.
func (p *Pass) trimLog(ctx context.Context) error {
	j := p.t.j
	if j.cfg.LogBytes < 0 {
		return nil
	}
	return p.Call(ctx, func(ctx context.Context) error {
		sized, trimmed, err := j.guard.Trim(ctx, j.cfg.LogBytes, logLeast, j.cfg.logRecords())
		if err != nil {
			return err
		}
		j.logSize.Note(unless(sized))
		j.logTrim.Note(unless(trimmed))
		return nil
	})
}

func unless(done bool) error {
	if done {
		return nil
	}
	return errNotTrimmed
}

// notAllowed reports a lasting refusal: this user has no right to a command, or the server does not
// know it.
func notAllowed(err error) bool {
	text := serverError(err)
	return strings.HasPrefix(text, "NOPERM ") ||
		strings.HasPrefix(text, "ERR ") && !strings.HasPrefix(text, "ERR max number of clients")
}
