package console

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"

	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/docs"
	"github.com/rollcall-redis/rollcall/internal/printable"
	"github.com/rollcall-redis/rollcall/internal/timeline"
	"github.com/rollcall-redis/rollcall/janitor"
)

//go:embed page
var pageFiles embed.FS

// pagePolicy allows a browser only this replica's own files, whatever somebody wrote into Redis.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

var pageTemplate = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"ago": ago, "span": inspect.Short, "seconds": seconds, "count": count,
	"outcome": outcome, "leaders": leaders, "held": held,
	"clock": clock, "one": one,
	"stamp": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"short": inspect.Short, "megabytes": inspect.Megabytes, "living": living, "address": newReplicaName,
	"term": newTerm, "owners": owners, "names": sweepNames,
	"reports": func(r []janitor.Report, now time.Time) reportTable {
		return reportTable{"The leader's last pass of each sweep", r, now}
	},
}).ParseFS(pageFiles, "page/*.html"))

type look struct {
	Match string // in their id or version
	Odd   bool   // only those to look at
	All   bool   // however many
}

func lookOf(r *http.Request) look {
	q := r.URL.Query()
	match := strings.ToLower(strings.TrimSpace(q.Get("match")))
	return look{match[:min(len(match), mostMatch)], q.Get("odd") != "", q.Get("all") != ""}
}

const mostMatch = 256

type pageView struct {
	Own      Stated
	Base     Status
	Look     look
	Fleet    *inspect.Status // nil: unknown
	Problems []inspect.Finding
	Timeline []timeline.Event // newest first
	Old      string           // the age of Fleet, unless it is new

	Asked    string
	Why      inspect.Why
	AskError string
}

func (s *HTTP) page(w http.ResponseWriter, r *http.Request) {
	v := s.view(r)
	s.ask(r, &v)
	s.show(w, "page.html", v)
}

// pageParts are templates of one element each, whose id is its name.
var pageParts = []string{"state", "list", "events", "passes", "acting", "owners", "names", "own"}

// parts answers a page that asks for what has changed: all of it, or nothing.
func (s *HTTP) parts(w http.ResponseWriter, r *http.Request) {
	v := s.view(r)
	var all bytes.Buffer
	for _, name := range pageParts {
		var of any = v
		if name == "own" {
			of = v.Own
		}
		html, err := s.rendered(name, of)
		if err != nil {
			fail(w, http.StatusInternalServerError, "the status page is broken")
			return
		}
		all.Write(html)
	}
	write(w, http.StatusOK, "text/html; charset=utf-8", all.Bytes())
}

// instance is the page of one instance: what it holds, and what happened to it.
func (s *HTTP) instance(w http.ResponseWriter, r *http.Request) {
	id, after := r.URL.Query().Get("id"), r.URL.Query().Get("after")
	if !askable(id) {
		failWith(w, badRequest("id: expected that of an instance"))
		return
	}
	held, err := ask(r.Context(), s.questions, r.RemoteAddr, "list "+id+" "+after,
		func(ctx context.Context) (inspect.Held, error) {
			return s.questions.reader.List(ctx, id, after, mostRows)
		})
	if err != nil {
		failWith(w, err)
		return
	}
	v := s.view(r)
	page := instancePage{Held: held, View: v}
	for _, e := range v.Timeline {
		if e.Instance == id {
			page.Events = append(page.Events, e)
		}
	}
	s.show(w, "instance.html", page)
}

type instancePage struct {
	inspect.Held
	View   pageView
	Events []timeline.Event
}

func (s *HTTP) why(w http.ResponseWriter, r *http.Request) {
	var v pageView
	s.ask(r, &v)
	s.show(w, "why", v)
}

func (s *HTTP) ask(r *http.Request, v *pageView) {
	var err error
	if v.Asked = r.URL.Query().Get("key"); v.Asked != "" && s.questions != nil {
		if v.Why, err = s.questions.tellWhy(r.Context(), r.RemoteAddr, v.Asked); err != nil {
			v.AskError = err.Error()
		}
	}
}

// view shows the last reading of the fleet.
func (s *HTTP) view(r *http.Request) pageView {
	own := s.cfg.Status()
	v := pageView{Own: own, Base: own.common(), Look: lookOf(r)}
	if s.fleet == nil {
		return v
	}
	last, err := s.fleet.now(r.Context(), s.fleet.patience)
	if err != nil {
		v.Problems = append(v.Problems, inspect.Unanswered(err))
		v.Problems = append(v.Problems, s.knows(v.Base).Findings(v.Base.Instance, v.Base.Time, err)...)
	}
	if last == nil {
		return v
	}
	status := last.status.Learn(v.Base.Instance, s.knows(v.Base))
	v.Fleet, v.Timeline = &status, last.events
	if err == nil {
		v.Problems = status.Findings()
	} else {
		v.Old = inspect.Short(time.Since(last.at))
	}
	return v
}

func (s *HTTP) asset(w http.ResponseWriter, r *http.Request) {
	kinds := map[string]string{
		".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
	}
	name := r.PathValue("file")
	kind, ok := kinds[path.Ext(name)]
	text, err := fs.ReadFile(pageFiles, path.Join("page", name))
	if !ok || err != nil {
		fail(w, http.StatusNotFound, "no such page: "+r.URL.Path)
		return
	}
	write(w, http.StatusOK, kind, text)
}

func (s *HTTP) show(w http.ResponseWriter, name string, v any) {
	body, err := s.rendered(name, v)
	if err != nil {
		fail(w, http.StatusInternalServerError, "the status page is broken; /api/v1/status has the same")
		return
	}
	w.Header().Set("Content-Security-Policy", pagePolicy)
	write(w, http.StatusOK, "text/html; charset=utf-8", body)
}

// rendered logs an error, which is a fault of the program.
func (s *HTTP) rendered(name string, v any) ([]byte, error) {
	var body bytes.Buffer
	if err := s.template.ExecuteTemplate(&body, name, v); err != nil {
		s.cfg.Logger.Error("cannot show the status page", "error", err)
		return nil, err
	}
	return printable.HTML(body.Bytes()), nil
}

// Class is good, warn or bad.
type verdict struct{ Class, Text string }

func outcome(o janitor.Outcome, reason string) verdict {
	switch o {
	case janitor.Done:
		return verdict{"good", "done"}
	case janitor.Held:
		return verdict{"warn", "held: " + reason}
	}
	return verdict{"bad", string(o)}
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05") }

func ago(now, t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return inspect.Ago(now.Sub(t).Truncate(time.Second))
}

func seconds(s float64) string {
	if d := time.Duration(s * float64(time.Second)); d > time.Second {
		return inspect.Short(d)
	}
	return fmt.Sprintf("%.0fms", 1000*s)
}

func one(n int64, singular, plural string) string {
	if n == 1 {
		return "1 " + singular
	}
	return count(n) + " " + plural
}

func count(n any) string {
	s := fmt.Sprint(n)
	if _, err := strconv.ParseUint(s, 10, 64); err != nil {
		return s
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// markdown omits HTML in a page.
var markdown = goldmark.New(goldmark.WithExtensions(extension.Table),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()))

// repository is where links out of the documentation lead.
const repository = "https://github.com/rollcall-redis/rollcall/blob/main/"

// upwards matches links out of a page's folder.
var upwards = regexp.MustCompile(`href="\.\./[^"#]*`)

// headingIDs names headings as GitHub does: links in the pages rely on that.
type headingIDs struct{}

func (headingIDs) Generate(heading []byte, _ ast.NodeKind) []byte {
	return bytes.Map(func(c rune) rune {
		switch {
		case c == ' ':
			return '-'
		case c == '-' || c == '_' || unicode.IsLetter(c) || unicode.IsDigit(c):
			return unicode.ToLower(c)
		}
		return -1
	}, heading)
}

func (headingIDs) Put([]byte) {}

type docPage struct {
	Title string
	Root  string // to the replica's own page
	Body  template.HTML
}

// doc serves the documentation of this version: runbooks without the internet.
func (s *HTTP) doc(w http.ResponseWriter, r *http.Request) {
	name := cmp.Or(strings.TrimPrefix(r.URL.Path, "/docs/"), "README.md")
	text, err := fs.ReadFile(docs.Files, name)
	if err != nil {
		fail(w, http.StatusNotFound, "no such page: "+r.URL.Path)
		return
	}
	if path.Ext(name) != ".md" {
		write(w, http.StatusOK, mime.TypeByExtension(path.Ext(name)), text)
		return
	}
	var body bytes.Buffer
	ids := parser.WithContext(parser.NewContext(parser.WithIDs(headingIDs{})))
	if err := markdown.Convert(text, &body, ids); err != nil {
		s.cfg.Logger.Error("cannot show the documentation", "page", name, "error", err)
		fail(w, http.StatusInternalServerError, "this page is broken")
		return
	}
	// The pages are this program's own, and goldmark omits their HTML.
	html := upwards.ReplaceAllStringFunc(body.String(), func(link string) string {
		to := path.Join("docs", path.Dir(name), strings.TrimPrefix(link, `href="`))
		if strings.HasPrefix(to, "docs/") {
			return link
		}
		return `href="` + repository + to
	})
	root := strings.Repeat("../", 1+strings.Count(name, "/"))
	s.show(w, "doc.html", docPage{name, root, template.HTML(html)})
}
