package commands

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/gateway"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

var errStopping = errors.New("commands: the instance stops")

// refusal is Redis' reason for not permitting a command.
type refusal struct {
	status Status
	text   string
}

func (r *refusal) Error() string { return "commands: " + string(r.status) }

// conclude adds the outcome of a command. It retries until that succeeds or work ends.
func (r *Reader) conclude(work context.Context, e entry, status Status, text string) {
	for pause := wait.Between(pauseFirst, pauseMost); ; {
		err := r.tryConclude(work, e, status, text)
		if err == nil {
			return
		}
		r.cfg.Logger.Debug("outcome of a command not added, trying again",
			"id", e.ID, "entry", e.at, "error", err)
		if !pause.Wait(work) {
			r.cfg.Logger.Warn("outcome of a command is left to the janitor",
				"id", e.ID, "entry", e.at, "status", status, "error", err)
			return
		}
	}
}

// tryConclude adds an outcome and counts it. The script refuses a second outcome for an id.
func (r *Reader) tryConclude(work context.Context, e entry, status Status, text string) error {
	limit := callTime
	if work.Err() != nil { // shutdown has no time for a slow Redis
		limit = time.Second
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(work), limit)
	defer cancel()
	log := r.cfg.Logger.With("id", e.ID, "stream", r.stream, "entry", e.at)
	added, err := string(status), error(nil)
	switch {
	case errors.Is(e.fault, errRemoved):
		added, err = verdictGone, r.drop(ctx, e.at)
	case errors.Is(e.fault, errNoID):
		added, err = countUnusable, r.drop(ctx, e.at)
	case added != verdictDuplicate && added != verdictGone:
		added, err = r.add(ctx, e, status, text)
	}
	if err != nil {
		return fmt.Errorf("commands: %w", err)
	}
	switch added {
	case verdictGone:
		log.Info("a command is gone from its stream")
		return nil
	case verdictDuplicate:
		added = countDuplicate
		log.Info("a command whose id was used before was removed")
	case countUnusable:
		log.Warn("a command without a usable id was removed")
	}
	r.counted.WithLabelValues(added).Inc()
	return nil
}

// send sends a command if Redis permits it. It returns the outcome, or a verdict that has no
// outcome. ctx ends when the instance stops, work when commands under way must end too.
func (r *Reader) send(ctx, work context.Context, e entry) (Status, string) {
	answer, err := r.cfg.Devices.Command(work, gateway.Command{
		IMEI: e.IMEI, Codec: e.codec(), Text: []byte(e.Text), Expires: e.Expires,
		Permit: func(waiting context.Context) (time.Duration, error) {
			return r.permit(ctx, waiting, e)
		},
	})
	var refused *refusal
	switch {
	case err == nil:
		return Answered, cut(answer)
	case errors.Is(err, gateway.ErrAmbiguous):
		return MaybeAnswered, cut(answer)
	case errors.As(err, &refused):
		return refused.status, refused.text
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

// answerMost bounds an answer in an outcome, in bytes. Trackers document this limit for a whole
// frame, so only a device that violates it is cut.
const answerMost = 1280

func cut(answer []byte) string {
	if len(answer) <= answerMost {
		return string(answer)
	}
	return string(answer[:answerMost]) + fmt.Sprintf(" [cut: the answer has %d bytes]", len(answer))
}

// detail returns an error's text without its sentinel.
func detail(err, sentinel error) string {
	return strings.TrimPrefix(err.Error(), sentinel.Error()+": ")
}

// permit asks Redis whether a command may be written now, until Redis answers or waiting ends.
func (r *Reader) permit(ctx, waiting context.Context, e entry) (time.Duration, error) {
	for pause := wait.Between(pauseFirst, pauseMost); ; {
		if ctx.Err() != nil {
			return 0, errStopping
		}
		call, cancel := context.WithTimeout(context.WithoutCancel(waiting), callTime)
		verdict, left, owner, err := r.take(call, e)
		cancel()
		if err == nil {
			return left, refused(verdict, owner)
		}
		// Redis is asked at least once, even after waiting has ended: expires is by its clock.
		if !pause.Wait(waiting) {
			return 0, context.Cause(waiting)
		}
	}
}

// refused returns the error for a verdict of take.lua.
func refused(verdict, owner string) error {
	switch verdict {
	case verdictSend:
		return nil
	case verdictExpired:
		return &refusal{Expired, "expired before it could be sent"}
	case verdictMoved:
		return &refusal{NotConnected, "the registry names another instance: " + owner}
	case verdictLost:
		return &refusal{InstanceLost, ""} // conclude.lua has the text
	}
	return &refusal{Status(verdict), ""} // without an outcome: see tryConclude
}
