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
	// mostFinds is how many devices are looked up at once; others wait.
	mostFinds = 8
	// findCall and whyCall bound an answer, including the wait for its turn: why reads the whole
	// eviction log.
	findCall, whyCall = 5 * time.Second, 15 * time.Second
	// mostWhys is how many keys why may be asked about at once, including those waiting.
	mostWhys = 32
	// longestKey is the longest key that can be asked about: an id in the registry has as many bytes.
	longestKey = 1024
)

type questions struct {
	reader  *inspect.Reader
	ctx     context.Context // ends when the server stops; set before the first request
	finds   *semaphore.Weighted
	asked   *semaphore.Weighted // keys asked about, read or waiting: their clients may have left
	whys    *semaphore.Weighted // one log is read at a time
	doctors *semaphore.Weighted
	same    singleflight.Group // concurrent questions about the same key share an answer
}

func newQuestions(r *inspect.Reader) *questions {
	return &questions{
		reader: r, ctx: context.Background(), finds: semaphore.NewWeighted(mostFinds),
		asked: semaphore.NewWeighted(mostWhys), whys: semaphore.NewWeighted(1), doctors: semaphore.NewWeighted(1),
	}
}

// end waits a while until no log is being read. The context has ended; a silent Redis then holds
// up the reading goroutine for whyCall at most.
func (q *questions) end() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(q.ctx), stopTimeout)
	defer cancel()
	_ = q.whys.Acquire(ctx, 1)
	_ = q.doctors.Acquire(ctx, 1)
}

// find is GET /api/v1/devices/{imei}.
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

// doctor is GET /api/v1/doctor. Concurrent requests share an answer.
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
	case <-req.Context().Done(): // nobody reads an answer
	}
}

// why is GET /api/v1/why?key=.
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

// tellWhy answers why, for HTTP and for the page.
func (q *questions) tellWhy(ctx context.Context, key string) (inspect.Why, error) {
	if !askable(key) {
		return inspect.Why{}, badRequest("key: expected an IMEI, or the name of a key that a rule sweeps")
	}
	// It continues for the others who wait, even if the first to ask leaves.
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
	case <-ctx.Done(): // nobody reads an answer
		return inspect.Why{}, context.Cause(ctx)
	}
}

// errBusy: too many others are asking.
var errBusy = errors.New("console: the eviction log is being read for others; ask again later")

// askable reports whether a key of that name can be asked about.
func askable(key string) bool {
	return key != "" && len(key) <= longestKey && utf8.ValidString(key) &&
		!strings.ContainsFunc(key, unicode.IsControl)
}
