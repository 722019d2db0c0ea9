package commands

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/gateway"
	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

var errStopping = errors.New("commands: the instance stops")

type refusal struct {
	status Status
	text   string
}

func (r *refusal) Error() string { return "commands: " + string(r.status) }

// conclude retries until the outcome is added or work ends. A command that the queue can never take
// would keep the device's others waiting: it is not_connected.
func (r *Reader) conclude(work context.Context, e entry, status Status, text string) {
	for pause := wait.Between(pauseFirst, pauseMost); ; {
		err := r.tryConclude(work, e, status, text)
		if err == nil {
			return
		}
		if status == verdictQueued && (redis.HasErrorPrefix(err, "WRONGTYPE ") || redis.IsPermissionError(err)) {
			status, text = NotConnected, text+"; it cannot wait: "+errors.Unwrap(err).Error()
			continue
		}
		r.cfg.Logger.Debug("outcome of a command not added, trying again",
			"id", e.ID, "entry", e.at, "error", err)
		if !pause.Wait(work) {
			by := "outcome of a command is left to the janitor"
			if r.queued(e) {
				by = "outcome of a queued command is left to other replicas"
			}
			r.cfg.Logger.Warn(by, "id", e.ID, "entry", e.at, "status", status, "error", err)
			return
		}
	}
}

func (r *Reader) tryConclude(work context.Context, e entry, status Status, text string) error {
	limit := callTime
	if work.Err() != nil { // shutdown has no time for a slow Redis
		limit = time.Second
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(work), limit)
	defer cancel()
	log := r.cfg.Logger.With("id", e.ID, "stream", e.stream, "entry", e.at)
	added, err := string(status), error(nil)
	switch {
	case errors.Is(e.fault, errNoID):
		added, err = r.drop(ctx, e)
	case added != verdictDuplicate && added != verdictGone && added != verdictTaken:
		added, err = r.add(ctx, e, status, text)
	}
	if err != nil {
		return fmt.Errorf("commands: %w", err)
	}
	if added != verdictTaken && added != verdictWaits {
		r.forget(e)
	}
	switch added {
	case verdictTaken, verdictWaits:
		return nil
	case verdictGone:
		if !r.queued(e) { // where any instance may add the outcome
			log.Info("a command is gone from its stream")
		}
		return nil
	case verdictDuplicate:
		log.Info("a command whose id was used before was removed")
	case countUnusable:
		log.Warn("a command without a usable id was removed")
	}
	r.counted.WithLabelValues(strings.ToLower(added)).Inc()
	return nil
}

// send returns the outcome, or a verdict that has none. work outlives ctx.
func (r *Reader) send(ctx, work context.Context, e entry) (Status, string) {
	status, text, unsent := r.trySend(ctx, work, e)
	switch {
	case !unsent || !e.Queue:
		return status, text
	case r.queued(e):
		return verdictWaits, ""
	}
	return verdictQueued, text
}

// trySend returns the outcome, and whether the command could still be sent elsewhere or later.
func (r *Reader) trySend(ctx, work context.Context, e entry) (_ Status, text string, unsent bool) {
	answer, err := r.cfg.Devices.Command(work, gateway.Command{
		IMEI: e.IMEI, Codec: teltonika.Codec(e.Codec), Text: []byte(e.Text), Expires: e.Expires,
		Permit: func(waiting context.Context) (time.Duration, error) {
			return r.permit(ctx, waiting, e)
		},
	})
	var refused *refusal
	switch {
	case err == nil:
		return Answered, cut(answer), false
	case errors.Is(err, gateway.ErrAmbiguous):
		return MaybeAnswered, cut(answer), false
	case errors.As(err, &refused):
		return refused.status, refused.text, refused.status == NotConnected
	case errors.Is(err, gateway.ErrWrongDevice):
		return WrongDevice, detail(err, gateway.ErrWrongDevice), false
	case errors.Is(err, gateway.ErrUnanswered) && work.Err() != nil:
		return InstanceLost, "the instance stopped before an answer; the device may have executed it", false
	case errors.Is(err, gateway.ErrUnanswered):
		return Timeout, detail(err, gateway.ErrUnanswered), false
	case errors.Is(err, errStopping):
		return InstanceLost, "the instance stopped before it was sent", true
	case errors.Is(err, context.DeadlineExceeded):
		return Expired, "expired before it could be sent", false
	}
	return NotConnected, detail(err, gateway.ErrNotConnected), true
}

// answerMost is what trackers document for a whole frame: only a device that violates it is cut.
const answerMost = 1280

func cut(answer []byte) string {
	if len(answer) <= answerMost {
		return string(answer)
	}
	return string(answer[:answerMost]) + fmt.Sprintf(" [cut: the answer has %d bytes]", len(answer))
}

func detail(err, sentinel error) string {
	return strings.TrimPrefix(err.Error(), sentinel.Error()+": ")
}

// permit asks Redis until it answers or waiting ends.
func (r *Reader) permit(ctx, waiting context.Context, e entry) (time.Duration, error) {
	for pause := wait.Between(pauseFirst, pauseMost); ; {
		if ctx.Err() != nil {
			return 0, errStopping
		}
		call, cancel := context.WithTimeout(context.WithoutCancel(waiting), callTime)
		verdict, left, owner, err := r.take(call, e)
		cancel()
		if err == nil {
			if verdict == verdictTaken && !r.queued(e) {
				verdict = string(InstanceLost) // only an earlier life can have sent it
			}
			if e.Queue { // expires may be a day ahead, and the device's later commands wait
				left = r.cfg.Answer
			}
			return left, refused(verdict, owner)
		}
		// At least once, even after waiting has ended: expires is by Redis' clock.
		if !pause.Wait(waiting) {
			return 0, context.Cause(waiting)
		}
	}
}

func refused(verdict, owner string) error {
	switch verdict {
	case verdictSend:
		return nil
	case verdictExpired:
		return &refusal{Expired, "expired before it could be sent"}
	case verdictMoved:
		return &refusal{NotConnected, "the registry names another instance: " + owner}
	}
	return &refusal{Status(verdict), ""} // no outcome, or settle.lua has its text: see tryConclude
}
