package console

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rollcall-redis/rollcall/internal/peer"
	"github.com/rollcall-redis/rollcall/janitor"
)

// do gets known parameters only. Each action also takes "who" asks, for the log.
type action struct {
	known []string
	do    func(ctx context.Context, p url.Values) (any, error)
}

func (s *HTTP) actions() map[string]action {
	return map[string]action{
		"/api/v1/sweep": {[]string{"dry_run", "owner", "sweep"}, s.sweep},
		"/api/v1/pause": {[]string{"why", "for", "until"}, s.pause},
		"/api/v1/resume": {nil, func(ctx context.Context, _ url.Values) (any, error) {
			return map[string]any{"paused": nil}, s.cfg.Janitor.Resume(ctx)
		}},
		"/api/v1/resign": {nil, func(ctx context.Context, _ url.Values) (any, error) {
			ctx, cancel := context.WithTimeout(ctx, writeTimeout-time.Second)
			defer cancel()
			return map[string]any{"resigned": true}, s.cfg.Janitor.Resign(ctx)
		}},
	}
}

func (s *HTTP) admin(a action) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wanted := s.cfg.Tokens()
		if len(wanted) == 0 {
			fail(w, http.StatusForbidden, "admin requests are off: ADMIN_TOKEN is not set")
			return
		}
		if !s.admitted(w, r, wanted) {
			return
		}
		// A sweep takes time. A writer without deadlines (in a test) still answers.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(sweepTimeout + writeTimeout))
		p, err := params(w, r, append(a.known, "who"))
		log := s.cfg.Logger.With("path", r.URL.Path, "peer", r.RemoteAddr)
		for _, name := range slices.Sorted(maps.Keys(p)) {
			log = log.With(name, p.Get(name))
		}
		var v any
		if err == nil {
			v, err = a.do(r.Context(), p)
		}
		if err != nil {
			log.Info("admin request failed", "error", err)
			failWith(w, err)
			return
		}
		log.Info("admin request done")
		if done, is := v.(swept); is && r.Header.Get("Accept") == "text/html" { // the page
			s.show(w, "reports", reportTable{"What it did", done.reports, time.Now()})
			return
		}
		answer(w, http.StatusOK, v)
	})
}

// admitted answers a request without the token itself.
func (s *HTTP) admitted(w http.ResponseWriter, r *http.Request, wanted []string) bool {
	given := r.Header.Values("Authorization")
	looked, right := true, false
	if len(given) > 0 { // a request without one does not count as a guess
		now := time.Now()
		looked, right = s.guesses.look(r.RemoteAddr, now, func() bool { return isToken(given, wanted) })
		if !right {
			s.guesses.log(r, now, s.cfg.Logger)
		}
	}
	switch {
	case !looked:
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusTooManyRequests, "too many wrong tokens: this one was not looked at")
	case !right:
		w.Header().Set("WWW-Authenticate", "Bearer")
		fail(w, http.StatusUnauthorized, "wrong or no bearer token")
	}
	return right
}

// isToken compares hashes, and with every token: the time depends neither on a token's length nor
// on which one is right.
func isToken(given, wanted []string) bool {
	scheme, token, _ := strings.Cut(given[0], " ")
	got, right := sha256.Sum256([]byte(token)), 0
	for _, one := range wanted {
		want := sha256.Sum256([]byte(one))
		right |= subtle.ConstantTimeCompare(got[:], want[:])
	}
	return len(given) == 1 && strings.EqualFold(scheme, "Bearer") && right == 1
}

func (s *HTTP) sweep(ctx context.Context, p url.Values) (_ any, err error) {
	req := janitor.Request{Owner: p.Get("owner"), Sweep: p.Get("sweep")}
	switch { // an unset shell variable
	case p.Has("owner") && req.Owner == "":
		return nil, badRequest("owner: expected an instance id; leave it out for all")
	case p.Has("sweep") && req.Sweep == "":
		return nil, badRequest("sweep: expected a sweep's name; leave it out for all")
	}
	if p.Has("dry_run") {
		if req.DryRun, err = strconv.ParseBool(p.Get("dry_run")); err != nil {
			return nil, badRequest("dry_run: expected true or false")
		}
	}
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	more := func() map[string]any { return map[string]any{} }
	if s.cfg.Swept != nil {
		more = s.cfg.Swept()
	}
	reports, err := s.cfg.Janitor.Sweep(ctx, req)
	done := swept{reports, more()}
	done.more["reports"] = reports
	return done, err
}

type swept struct {
	reports []janitor.Report
	more    map[string]any
}

func (s swept) MarshalJSON() ([]byte, error) { return json.Marshal(s.more) }

func (s *HTTP) pause(ctx context.Context, p url.Values) (_ any, err error) {
	pause := janitor.Pause{Who: p.Get("who"), Why: p.Get("why")}
	switch {
	case pause.Who == "" || pause.Why == "":
		return nil, badRequest("expected who and why, for those who find the sweeping held")
	case p.Has("for") && p.Has("until"):
		return nil, badRequest("expected for or until, got both")
	case p.Has("for"):
		d, err := time.ParseDuration(p.Get("for"))
		if err != nil || d <= 0 {
			return nil, badRequest("for: expected a duration with its unit, such as 30m")
		}
		pause.Until = time.Now().Add(d).Round(time.Second)
	case p.Has("until"):
		pause.Until, err = time.Parse(time.RFC3339, p.Get("until"))
		if err != nil || !pause.Until.After(time.Now()) {
			example := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
			return nil, badRequest("until: expected a time to come, such as " + example)
		}
	}
	return map[string]any{"paused": pause}, s.cfg.Janitor.Pause(ctx, pause)
}

const mostParams = 64 << 10

// params takes the query and a form or JSON object in the body. It refuses a parameter that is
// unknown or given twice, and any other kind of body: an ignored dry_run would be a real sweep.
func params(w http.ResponseWriter, r *http.Request, known []string) (url.Values, error) {
	r.Body = http.MaxBytesReader(w, r.Body, mostParams)
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case kind == "application/json":
		query, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			return nil, badRequest("the query cannot be read: " + err.Error())
		}
		if err := addJSON(query, r.Body); err != nil {
			return nil, err
		}
		r.Form = query
	case kind != "application/x-www-form-urlencoded" && r.ContentLength != 0:
		return nil, badRequest("expected parameters in the query, as a form " +
			"(application/x-www-form-urlencoded) or as application/json; the body is neither")
	default:
		if err := r.ParseForm(); err != nil {
			return nil, badRequest("expected parameters in the query, as a form or as JSON: " + err.Error())
		}
	}
	for k, v := range r.Form {
		if !slices.Contains(known, k) {
			text := fmt.Sprintf("unknown parameter %q; known: %s", k, strings.Join(known, ", "))
			return nil, badRequest(text)
		}
		if len(v) != 1 {
			return nil, badRequest(k + ": given more than once")
		}
	}
	return r.Form, nil
}

// addJSON adds repeated members as often as they occur.
func addJSON(to url.Values, body io.Reader) error {
	var tokens []json.Token
	d := json.NewDecoder(body)
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			return badRequest("expected one JSON object: " + err.Error())
		}
		tokens = append(tokens, token)
	}
	last := len(tokens) - 1
	if last < 1 || tokens[0] != json.Delim('{') || tokens[last] != json.Delim('}') {
		return badRequest("expected one JSON object")
	}
	for member := range slices.Chunk(tokens[1:last], 2) {
		key, ok := member[0].(string)
		if !ok { // the rest after the object
			return badRequest("expected one JSON object")
		}
		switch v := member[1].(type) {
		case string, bool:
			to.Add(key, fmt.Sprint(v))
		default:
			return badRequest(key + ": expected a string, true or false")
		}
	}
	return nil
}

const (
	// guessPause passes between two checks of an address' wrong tokens.
	guessPause = time.Second
	// guessesInAll is how many wrong tokens are checked in a guessPause, over all addresses that
	// have not shown the right one lately. One address alone must not keep the others out.
	guessesInAll = 10
	// After guessQuiet a wrong token is logged again.
	guessQuiet = time.Minute
	// trustedFor is how long the right token is remembered.
	trustedFor  = time.Hour
	mostTrusted = 100
)

// guesses bounds how often a wrong administrator's token is checked.
type guesses struct {
	mu      sync.Mutex
	refused map[netip.Prefix]time.Time // lately
	trusted map[netip.Prefix]time.Time // since when
	last    time.Time                  // of a refusal
}

// look refuses to check a peer's token after too many wrong ones.
func (g *guesses) look(remote string, now time.Time, isRight func() bool) (looked, right bool) {
	g.mu.Lock() // also during the comparison: one by one
	defer g.mu.Unlock()
	for at, when := range g.refused {
		if age := now.Sub(when); age >= guessPause || age < 0 {
			delete(g.refused, at)
		}
	}
	at := peer.Network(remote)
	since, known := g.trusted[at]
	trusted := known && now.Sub(since) < trustedFor
	if _, lately := g.refused[at]; lately || len(g.refused) >= guessesInAll && !trusted {
		return false, false
	}
	if !isRight() {
		if g.refused == nil {
			g.refused = map[netip.Prefix]time.Time{}
		}
		g.refused[at] = now
		return true, false
	}
	g.trust(at, now)
	return true, true
}

// The caller holds mu.
func (g *guesses) trust(at netip.Prefix, now time.Time) {
	if g.trusted == nil {
		g.trusted = map[netip.Prefix]time.Time{}
	}
	if _, known := g.trusted[at]; !known && len(g.trusted) >= mostTrusted {
		for other := range g.trusted {
			delete(g.trusted, other)
			break
		}
	}
	g.trusted[at] = now
}

// log logs the first refusal in a while.
func (g *guesses) log(r *http.Request, now time.Time, log *slog.Logger) {
	g.mu.Lock()
	quiet := g.last.IsZero() || now.Sub(g.last) >= guessQuiet
	g.last = now
	g.mu.Unlock()
	if quiet {
		log.Warn("admin request refused", "path", r.URL.Path, "peer", r.RemoteAddr)
	}
}
