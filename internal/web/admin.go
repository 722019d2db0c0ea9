package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/janitor"
)

// admin lets a request through to h if it carries the token, and writes what h
// returns.
func (s *Server) admin(h func(http.ResponseWriter, *http.Request) (any, error)) http.Handler {
	want := sha256.Sum256([]byte(s.cfg.Token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.cfg.Token == "" {
			fail(w, http.StatusForbidden, "admin requests are off: ADMIN_TOKEN is not set")
			return
		}
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		// Hashes are compared, since the time must not tell the token's length either.
		got := sha256.Sum256([]byte(token))
		if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			s.cfg.Logger.Warn("admin request refused", "path", r.URL.Path, "peer", r.RemoteAddr)
			w.Header().Set("WWW-Authenticate", "Bearer")
			fail(w, http.StatusUnauthorized, "wrong or no bearer token")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
		v, err := h(w, r)
		if err != nil {
			s.cfg.Logger.Info("admin request failed", "path", r.URL.Path, "peer", r.RemoteAddr, "error", err)
			failWith(w, err)
			return
		}
		s.cfg.Logger.Info("admin request done", "path", r.URL.Path, "peer", r.RemoteAddr)
		answer(w, http.StatusOK, v)
	})
}

func (s *Server) sweep(w http.ResponseWriter, r *http.Request) (any, error) {
	p, err := params(r, "dry_run", "owner")
	if err != nil {
		return nil, err
	}
	req := janitor.Request{Owner: p.Get("owner")}
	if p.Has("owner") && req.Owner == "" {
		return nil, badRequest("owner: expected an instance id; leave it out for all") // an unset shell variable
	}
	if p.Has("dry_run") {
		if req.DryRun, err = strconv.ParseBool(p.Get("dry_run")); err != nil {
			return nil, badRequest("dry_run: expected true or false")
		}
	}
	// A writer that has no deadline of its own (in a test) answers all the same.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(sweepTimeout + writeTimeout))
	ctx, cancel := context.WithTimeout(r.Context(), sweepTimeout)
	defer cancel()
	reports, err := s.cfg.Janitor.Sweep(ctx, req)
	if err != nil {
		return nil, err
	}
	return map[string]any{"reports": reports}, nil
}

func (s *Server) pause(_ http.ResponseWriter, r *http.Request) (any, error) {
	p, err := params(r, "who", "why", "for", "until")
	if err != nil {
		return nil, err
	}
	pause := janitor.Pause{Who: p.Get("who"), Why: p.Get("why")}
	if pause.Who == "" || pause.Why == "" {
		return nil, badRequest("expected who and why, for whoever finds the sweeping held")
	}
	switch {
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
			return nil, badRequest("until: expected a time to come, such as " + time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		}
	}
	if err := s.cfg.Janitor.Pause(r.Context(), pause); err != nil {
		return nil, err
	}
	return map[string]any{"paused": pause}, nil
}

func (s *Server) resume(_ http.ResponseWriter, r *http.Request) (any, error) {
	if _, err := params(r); err != nil {
		return nil, err
	}
	if err := s.cfg.Janitor.Resume(r.Context()); err != nil {
		return nil, err
	}
	return map[string]any{"paused": nil}, nil
}

func (s *Server) resign(_ http.ResponseWriter, r *http.Request) (any, error) {
	if _, err := params(r); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), writeTimeout-time.Second)
	defer cancel()
	if err := s.cfg.Janitor.Resign(ctx); err != nil {
		return nil, err
	}
	return map[string]any{"resigned": true}, nil
}

// tokens counts the tokens of a JSON text that was understood before: braces, keys and values.
func tokens(text []byte) (n int) {
	for d := json.NewDecoder(bytes.NewReader(text)); ; n++ {
		if _, err := d.Token(); err != nil {
			return n
		}
	}
}

// params are a request's parameters, from the query and a form or JSON object in
// the body. One that is not known, or given twice, is refused.
func params(r *http.Request, known ...string) (url.Values, error) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "application/json" {
		var object map[string]any
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, badRequest("expected a JSON object: " + err.Error())
		}
		body := json.NewDecoder(bytes.NewReader(text))
		if err := body.Decode(&object); err != nil {
			return nil, badRequest("expected a JSON object: " + err.Error())
		}
		if _, err := body.Token(); object == nil || !errors.Is(err, io.EOF) {
			return nil, badRequest("expected one JSON object")
		}
		query, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil { // what is not read cannot be refused
			return nil, badRequest("the query cannot be read: " + err.Error())
		}
		r.Form = query
		for k, v := range object {
			switch v.(type) {
			case string, bool:
				r.Form.Add(k, fmt.Sprint(v))
			default:
				return nil, badRequest(k + ": expected a string, true or false")
			}
		}
		if tokens(text) != 2+2*len(object) { // of two equal keys the map holds the last
			return nil, badRequest("a parameter of the JSON object is given more than once")
		}
	} else if kind != "application/x-www-form-urlencoded" && r.ContentLength != 0 {
		// What is not read cannot be refused, and a dry_run that is not read is a real sweep.
		return nil, badRequest("expected parameters in the query, as a form (application/x-www-form-urlencoded) or as application/json; the body is neither")
	} else if err := r.ParseForm(); err != nil {
		return nil, badRequest("expected parameters in the query, as a form or as JSON: " + err.Error())
	}
	for k, v := range r.Form {
		if !slices.Contains(known, k) {
			return nil, badRequest(fmt.Sprintf("unknown parameter %q; known: %s", k, strings.Join(known, ", ")))
		}
		if len(v) != 1 {
			return nil, badRequest(k + ": given more than once")
		}
	}
	return r.Form, nil
}
