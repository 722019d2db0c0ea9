package console

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
)

const (
	mostFinds = 8
	// findCall and whyCall include the wait for a turn: why reads the whole eviction log.
	findCall, whyCall = 5 * time.Second, 15 * time.Second
	// mostWhys includes the keys that wait.
	mostWhys = 32
	// longestKey is that of an id in the registry.
	longestKey = 1024
)

type questions struct {
	reader  *inspect.Reader
	ctx     context.Context // ends when the server stops; set before the first request
	finds   *semaphore.Weighted
	asked   *semaphore.Weighted // keys read or waiting: their clients may have left
	whys    *semaphore.Weighted // one log is read at a time
	doctors *semaphore.Weighted
	same    singleflight.Group // for the same key
}

func newQuestions(r *inspect.Reader) *questions {
	return &questions{
		reader: r, ctx: context.Background(), finds: semaphore.NewWeighted(mostFinds),
		asked: semaphore.NewWeighted(mostWhys), whys: semaphore.NewWeighted(1), doctors: semaphore.NewWeighted(1),
	}
}

// end waits until no log is being read. The context has ended; a silent Redis then holds up the
// reading goroutine for whyCall at most.
func (q *questions) end() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(q.ctx), stopTimeout)
	defer cancel()
	_ = q.whys.Acquire(ctx, 1)
	_ = q.doctors.Acquire(ctx, 1)
}

func (q *questions) find(w http.ResponseWriter, req *http.Request) {
	imei := req.PathValue("imei")
	if !askable(imei) {
		failWith(w, badRequest("expected an IMEI, such as /api/v1/devices/356307042441013"))
		return
	}
	ctx, cancel := context.WithTimeout(req.Context(), findCall)
	defer cancel()
	if err := q.finds.Acquire(ctx, 1); err != nil {
		fail(w, http.StatusServiceUnavailable, "too many devices are looked for; ask again later")
		return
	}
	defer q.finds.Release(1)
	found, err := q.reader.Find(ctx, imei)
	switch {
	case err != nil:
		failWith(w, err)
	case found.Owner == "":
		fail(w, http.StatusNotFound, found.Sentence)
	default:
		answer(w, http.StatusOK, found)
	}
}

func (q *questions) doctor(w http.ResponseWriter, req *http.Request) {
	p, err := params(w, req, []string{"expect"})
	if err != nil {
		failWith(w, err)
		return
	}
	expect := 0
	if text := p.Get("expect"); text != "" {
		if expect, err = strconv.Atoi(text); err != nil || expect < 0 {
			failWith(w, badRequest("expect: expected how many replicas are to live"))
			return
		}
	}
	answers := q.same.DoChan("doctor "+strconv.Itoa(expect), func() (any, error) {
		if !q.doctors.TryAcquire(1) {
			return nil, errors.New("console: doctor is asked with another number; ask again later")
		}
		defer q.doctors.Release(1)
		ctx, cancel := context.WithTimeout(q.ctx, whyCall)
		defer cancel()
		return q.reader.DoctorOf(ctx, expect)
	})
	select {
	case a := <-answers:
		if a.Err != nil {
			failWith(w, a.Err)
			return
		}
		answer(w, http.StatusOK, a.Val)
	case <-req.Context().Done():
	}
}

func (q *questions) why(w http.ResponseWriter, req *http.Request) {
	p, err := params(w, req, []string{"key"})
	if err != nil {
		failWith(w, err)
		return
	}
	found, err := q.tellWhy(req.Context(), p.Get("key"))
	if err != nil {
		failWith(w, err)
		return
	}
	answer(w, http.StatusOK, found)
}

func (q *questions) tellWhy(ctx context.Context, key string) (inspect.Why, error) {
	if !askable(key) {
		return inspect.Why{}, badRequest("key: expected an IMEI, or the name of a key that a rule sweeps")
	}
	// It continues for the others who wait.
	answers := q.same.DoChan("why "+key, func() (any, error) {
		if !q.asked.TryAcquire(1) {
			return nil, errBusy
		}
		defer q.asked.Release(1)
		ctx, cancel := context.WithTimeout(q.ctx, whyCall)
		defer cancel()
		if err := q.whys.Acquire(ctx, 1); err != nil {
			return nil, errBusy
		}
		defer q.whys.Release(1)
		return q.reader.Why(ctx, key)
	})
	select {
	case a := <-answers:
		found, _ := a.Val.(inspect.Why)
		return found, a.Err
	case <-ctx.Done():
		return inspect.Why{}, context.Cause(ctx)
	}
}

var errBusy = errors.New("console: the eviction log is being read for others; ask again later")

func askable(key string) bool {
	return key != "" && len(key) <= longestKey && utf8.ValidString(key) &&
		!strings.ContainsFunc(key, unicode.IsControl)
}
