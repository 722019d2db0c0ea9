package console

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"github.com/rollcall-redis/rollcall/cmd/internal/doors"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
)

const (
	askCall = 15 * time.Second
	// fresh is how long an answer is given to others who ask the same, and between two doctors.
	fresh = time.Second
	// asksOf are the different questions a second that one network may have read, asksInAll those of
	// all networks. A question reads a few keys.
	asksOf, asksInAll = 20, 100
	// mostAsked are under way at once: their clients may have left.
	mostAsked = 32
	// longestKey is that of an id in the registry.
	longestKey = 1024
)

var (
	errBusy     = errors.New("console: others are being answered; ask again later")
	errTooMuch  = errors.New("console: too many different questions within a second; ask again later")
	errNoAnswer = errors.New("console: the answer is of another kind")
)

// questions answers what the shared reading of the fleet does not, at a cost that is bounded
// however many ask.
type questions struct {
	reader  *inspect.Reader
	fleet   *fleet
	ctx     context.Context // ends when the server stops; set before the first request
	asked   *semaphore.Weighted
	doctors *semaphore.Weighted
	same    singleflight.Group

	mu      sync.Mutex
	answers map[string]lately // by question
	second  time.Time         // when the counts began
	of      map[netip.Prefix]int
	inAll   int
}

type lately struct {
	at    time.Time
	value any
}

func newQuestions(r *inspect.Reader, f *fleet) *questions {
	return &questions{
		reader: r, fleet: f, ctx: context.Background(), asked: semaphore.NewWeighted(mostAsked),
		doctors: semaphore.NewWeighted(1), answers: map[string]lately{}, of: map[netip.Prefix]int{},
	}
}

// end waits for the questions under way. The context has ended; a silent Redis then holds up the
// reading goroutine for askCall at most.
func (q *questions) end() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(q.ctx), stopTimeout)
	defer cancel()
	_ = q.asked.Acquire(ctx, mostAsked)
}

// ask reads once for all who ask the same within a second.
func ask[T any](
	ctx context.Context, q *questions, remote, question string, read func(context.Context) (T, error),
) (answer T, err error) {
	from := doors.Network(remote)
	// Too many questions of others are not a reason to refuse this network.
	answers := q.same.DoChan(from.String()+" "+question, func() (any, error) {
		if v, known := q.known(question); known {
			return v, nil
		}
		if !q.may(from, time.Now()) {
			return nil, errTooMuch
		}
		if !q.asked.TryAcquire(1) {
			return nil, errBusy
		}
		defer q.asked.Release(1)
		ctx, cancel := context.WithTimeout(q.ctx, askCall)
		defer cancel()
		v, err := read(ctx)
		if err == nil {
			q.keep(question, v)
		}
		return v, err
	})
	select {
	case a := <-answers: // it continues for the others who wait
		answer, is := a.Val.(T)
		if a.Err == nil && !is {
			return answer, errNoAnswer
		}
		return answer, a.Err
	case <-ctx.Done():
		return answer, context.Cause(ctx)
	}
}

func (q *questions) known(question string) (any, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a, ok := q.answers[question]
	return a.value, ok && time.Since(a.at) < fresh
}

func (q *questions) keep(question string, value any) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for other, a := range q.answers {
		if time.Since(a.at) >= fresh {
			delete(q.answers, other)
		}
	}
	q.answers[question] = lately{time.Now(), value}
}

func (q *questions) may(from netip.Prefix, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if age := now.Sub(q.second); age >= time.Second || age < 0 {
		q.second, q.inAll = now, 0
		clear(q.of)
	}
	if q.inAll >= asksInAll || q.of[from] >= asksOf {
		return false
	}
	q.inAll++
	q.of[from]++
	return true
}

func (q *questions) find(w http.ResponseWriter, req *http.Request) {
	imei := req.PathValue("imei")
	if !askable(imei) {
		failWith(w, badRequest("expected an IMEI, such as /api/v1/devices/356307042441013"))
		return
	}
	found, err := ask(req.Context(), q, req.RemoteAddr, "find "+imei, func(ctx context.Context) (inspect.Found, error) {
		last, err := q.fleet.now(ctx, askCall)
		if err != nil {
			return inspect.Found{}, err
		}
		return q.reader.Find(ctx, last.status, imei)
	})
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
	found, err := ask(req.Context(), q, req.RemoteAddr, "doctor "+strconv.Itoa(expect),
		func(ctx context.Context) (inspect.Diagnosis, error) {
			if q.doctors.Acquire(ctx, 1) != nil {
				return inspect.Diagnosis{}, errBusy
			}
			time.AfterFunc(fresh, func() { q.doctors.Release(1) })
			return q.reader.Doctor(ctx, expect)
		})
	if err != nil {
		failWith(w, err)
		return
	}
	answer(w, http.StatusOK, found)
}

func (q *questions) why(w http.ResponseWriter, req *http.Request) {
	p, err := params(w, req, []string{"key"})
	if err != nil {
		failWith(w, err)
		return
	}
	found, err := q.tellWhy(req.Context(), req.RemoteAddr, p.Get("key"))
	if err != nil {
		failWith(w, err)
		return
	}
	answer(w, http.StatusOK, found)
}

func (q *questions) tellWhy(ctx context.Context, remote, key string) (inspect.Why, error) {
	if !askable(key) {
		return inspect.Why{}, badRequest("key: expected an IMEI, or the name of a key that a rule sweeps")
	}
	return ask(ctx, q, remote, "why "+key, func(ctx context.Context) (inspect.Why, error) {
		last, err := q.fleet.now(ctx, askCall)
		if err != nil {
			return inspect.Why{}, err
		}
		return q.reader.Why(ctx, last.status, key)
	})
}

func askable(key string) bool {
	return key != "" && len(key) <= longestKey && utf8.ValidString(key) &&
		!strings.ContainsFunc(key, unicode.IsControl)
}
