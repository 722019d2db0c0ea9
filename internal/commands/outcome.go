package commands

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/internal/gateway"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// errStopping ends what is under way when the instance stops.
var errStopping = errors.New("commands: the instance stops")

// refusal is a verdict of take other than SEND.
type refusal struct{ verdict, owner string }

func (r *refusal) Error() string { return "commands: " + r.verdict }

// settle adds the outcome of a command, and tries again until it has, or until work ends.
func (r *Reader) settle(work context.Context, e entry, status Status, text string) {
	for pause := pauseFirst; ; pause = min(2*pause, pauseMost) {
		err := r.conclude(work, e, status, text)
		if err == nil {
			return
		}
		r.cfg.Logger.Debug("outcome of a command not added, trying again", "id", e.ID, "entry", e.at, "error", err)
		if !wait.For(work, pause) {
			r.cfg.Logger.Warn("outcome of a command is left to the janitor", "id", e.ID, "entry", e.at, "status", status, "error", err)
			return
		}
	}
}

// send sends a command if that is right, and returns what became of it, or a verdict after which
// nothing is to be said of it. ctx ends when the instance stops, work when what is under way is to
// end too.
func (r *Reader) send(ctx, work context.Context, e entry) (Status, string) {
	answer, err := r.cfg.Devices.Command(work, gateway.Command{
		IMEI: e.IMEI, Codec: e.codec(), Text: []byte(e.Text), Expires: e.Expires,
		Permit: func(waiting context.Context) (time.Duration, error) { return r.permit(ctx, waiting, e) },
	})
	var refused *refusal
	switch {
	case err == nil:
		return Answered, shortened(answer)
	case errors.As(err, &refused):
		return refused.outcome()
	case errors.Is(err, gateway.ErrWrongDevice):
		return WrongDevice, detail(err, gateway.ErrWrongDevice)
	case errors.Is(err, gateway.ErrUnanswered) && work.Err() != nil:
		return InstanceLost, "the instance stopped before an answer; the device may have executed it"
	case errors.Is(err, gateway.ErrUnanswered):
		return Timeout, detail(err, gateway.ErrUnanswered)
	case errors.Is(err, errStopping):
		return InstanceLost, "the instance stopped before it was sent"
	case errors.Is(err, context.DeadlineExceeded):
		return Expired, "expired before it could be sent"
	}
	return NotConnected, detail(err, gateway.ErrNotConnected)
}

// answerMost is the most bytes of an answer that an outcome holds: what trackers document for a
// whole frame, so that only a device that does not keep to that is cut short.
const answerMost = 1280

// shortened is an answer as an outcome holds it.
func shortened(answer []byte) string {
	if len(answer) <= answerMost {
		return string(answer)
	}
	return fmt.Sprintf("%s [cut: the answer has %d bytes]", answer[:answerMost], len(answer))
}

// detail is what an error says beside its sentinel.
func detail(err, sentinel error) string {
	return strings.TrimPrefix(err.Error(), sentinel.Error()+": ")
}

// permit asks Redis whether a command may be written now, until Redis answers or nobody waits any
// more.
func (r *Reader) permit(ctx, waiting context.Context, e entry) (time.Duration, error) {
	for pause := pauseFirst; ; pause = min(2*pause, pauseMost) {
		if ctx.Err() != nil {
			return 0, errStopping
		}
		call, cancel := context.WithTimeout(context.WithoutCancel(waiting), callTime)
		verdict, left, owner, err := r.take(call, e)
		cancel()
		switch {
		case err == nil && verdict == verdictSend:
			return left, nil
		case err == nil:
			return 0, &refusal{verdict, owner}
		}
		// Not before Redis has answered once, since expires is by its clock: then waiting has ended, by
		// ours.
		if !wait.For(waiting, pause) {
			return 0, context.Cause(waiting)
		}
	}
}

func (r *refusal) outcome() (Status, string) {
	switch r.verdict {
	case verdictExpired:
		return Expired, "expired before it could be sent"
	case verdictMoved:
		return NotConnected, "the registry names another instance: " + r.owner
	case verdictLost:
		return InstanceLost, "" // the script says why
	}
	return Status(r.verdict), "" // nobody is to be told anything: conclude knows
}

// conclude adds an outcome and counts what was added. A second one for an id is refused by the
// script.
func (r *Reader) conclude(work context.Context, e entry, status Status, text string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(work), callTime)
	defer cancel()
	if work.Err() != nil { // at the end there is no time for a Redis that is slow
		ctx, cancel = context.WithTimeout(ctx, time.Second)
		defer cancel()
	}
	if errors.Is(e.fault, errNoID) || errors.Is(e.fault, errRemoved) {
		if err := r.drop(ctx, e.at); err != nil || errors.Is(e.fault, errRemoved) {
			return err
		}
		r.metrics.commands.WithLabelValues(countUnusable).Inc()
		r.cfg.Logger.Warn("a command without a usable id was removed", "stream", r.stream, "entry", e.at)
		return nil
	}
	added, err := string(status), error(nil)
	if added != verdictDuplicate && added != verdictGone {
		added, err = r.add(ctx, e, status, text)
	}
	switch {
	case err != nil:
		return fmt.Errorf("commands: %w", err)
	case added == verdictDuplicate:
		r.metrics.commands.WithLabelValues(countDuplicate).Inc()
		r.cfg.Logger.Info("a command whose id was used before was removed", "id", e.ID, "stream", r.stream, "entry", e.at)
	case added == verdictGone:
		r.cfg.Logger.Info("a command is gone from its stream", "id", e.ID, "stream", r.stream, "entry", e.at)
	default:
		r.metrics.commands.WithLabelValues(added).Inc()
	}
	return nil
}
