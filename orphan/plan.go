package orphan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/janitor/proof"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// A Finding is the result of a look at one candidate.
type Finding struct {
	Rule    string   `json:"rule"`
	Name    string   `json:"name"`
	Verdict string   `json:"verdict"` // condemned, alive, young, unreadable, unknown, foreign, large
	Why     []string `json:"why"`     // each sign and its answer
	// Since is when it was first found condemned; zero: it has no mark.
	Since time.Time `json:"since,omitzero"`
}

// A Plan is the result of a look at all candidates of a rule.
type Plan struct {
	Rule     string         `json:"rule"`
	Of       string         `json:"of,omitempty"`   // the rule whose related keys these are
	Held     string         `json:"held,omitempty"` // reference_lost, source
	Detail   string         `json:"detail,omitempty"`
	Scanned  int            `json:"scanned"`
	Verdicts map[string]int `json:"verdicts"`
	Findings []Finding      `json:"findings"` // condemned ones, at most limit
	Types    map[string]int `json:"types"`    // of the candidates' keys
	Samples  []string       `json:"samples"`
	// Signs are the signs of life, and how many candidates each keeps: those that no sign before it
	// does.
	Signs []Kept `json:"signs"`
	// Places are the keys without a variable that the rule looks at, and their types.
	Places   map[string]string `json:"places"`
	Coverage Coverage          `json:"coverage"`

	// Wrong keeps the rule from working; Cautions need a look before the rule deletes anything; Notes
	// may be intended.
	Wrong    []string `json:"wrong"`
	Cautions []string `json:"cautions"`
	Notes    []string `json:"notes"`

	unread  string // why the first one could not be read
	misread int    // what should be a time is none
	braced  int    // keys that would be candidates, except for a hash tag
	sample  string // of them
	met     []int  // keys that could show each sign
}

// Kept is how many candidates a sign of life keeps.
type Kept struct {
	Sign  string `json:"sign"`
	Keeps int    `json:"keeps"`
}

const samples = 3

// Plan looks once at every candidate of each rule, in one walk, and writes nothing. It uses neither
// the janitor's lease nor its pace: it takes all of Redis' time that it can get.
func (s *Set) Plan(ctx context.Context, limit int) ([]Plan, error) {
	plans, errs := make([]Plan, len(s.rules)), make([]error, len(s.rules))
	ws, c := new(walks), inTurn{plainly{s.c.Client}, new(sync.Mutex)}
	var all conc.WaitGroup
	for i, r := range s.rules {
		arrived := ws.expect()
		all.Go(func() {
			defer arrived()
			if err := s.plan(ctx, r, c, ws, arrived, limit, &plans[i]); err != nil {
				errs[i] = fmt.Errorf("orphan: plan of rule %q: %w", r.Name, err)
			}
		})
	}
	all.Wait()
	return plans, cmp.Or(errs...)
}

func (s *Set) plan(
	ctx context.Context, r *rule, c caller, ws *walks, arrived func(), limit int, p *Plan,
) error {
	*p = Plan{
		Rule: r.Name, Of: r.Of, Verdicts: map[string]int{}, Findings: []Finding{}, Types: map[string]int{},
		Samples: []string{}, Signs: []Kept{}, Wrong: []string{}, Cautions: []string{}, Notes: []string{},
		met: make([]int, len(r.life)),
	}
	for i := range r.life {
		p.Signs = append(p.Signs, Kept{Sign: r.describe(i)})
	}
	before, err := masters(ctx, s.c.Client, nodeTimeout)
	if err != nil {
		return err
	}
	home, err := homeOf(before, s.c.Layout)
	if err != nil {
		return err
	}
	if p.Places, err = typesOf(ctx, c, sorted(r.places())); err != nil {
		return err
	}
	book, err := s.read(ctx, c, r)
	if err != nil {
		return err
	}
	refs, err := r.references(ctx, c, s.c.Source, book, book.Now())
	switch {
	case errors.Is(err, errSource):
		p.Held, p.Detail = heldSource, err.Error()
		return nil
	case err != nil:
		return err
	case refs.lost != "":
		p.Held, p.Detail = heldLost, refs.lost
	}
	templates := r.templates()
	for _, sign := range r.life {
		if sign.isKey() && len(sign.key.Variables()) > 0 {
			templates = append(templates, sign.key)
		}
	}
	d := ws.join(before, templates)
	arrived()
	met := func(key string) { r.meets(p, key) }
	err = r.walk(ctx, c, d, met, func(page []*candidate) error {
		found, err := r.look(ctx, c, s.c.Source, home, page)
		if err != nil {
			return err
		}
		return r.planned(ctx, c, book, found, limit, p)
	})
	switch {
	case errors.Is(err, errSource):
		p.Held, p.Detail = heldSource, err.Error()
		return nil
	case errors.Is(err, errCompact):
		p.Wrong = append(p.Wrong, err.Error())
	case err != nil:
		return err
	}
	after, err := masters(ctx, s.c.Client, nodeTimeout)
	if err != nil {
		return err
	}
	p.Coverage = Coverage{Masters: len(before.masters), Of: before.of,
		Complete: errors.Join(before.fault, before.changed(after)) == nil}
	return r.advise(ctx, c, s.rules, p)
}

func (r *rule) planned(
	ctx context.Context, c caller, book *proof.Book, found []*finding, limit int, p *Plan,
) error {
	var keys []string
	for _, f := range found {
		if f.verdict == absent {
			continue
		}
		p.Scanned++
		p.Verdicts[f.verdict]++
		if f.verdict == foreign {
			continue
		}
		if f.by > 0 {
			p.Signs[f.by-1].Keeps++
		}
		if f.verdict == unreadable && (p.unread == "" || f.misread && p.misread == 0) {
			p.unread = f.name() + ": " + f.why[len(f.why)-1]
		}
		if f.misread {
			p.misread++
		}
		if keys = append(keys, f.key); len(p.Samples) < samples {
			p.Samples = append(p.Samples, f.name())
		}
		if f.verdict == condemned && len(p.Findings) < limit {
			p.Findings = append(p.Findings, r.finding(f, book))
		}
	}
	if r.Members != nil {
		if len(keys) > 0 {
			p.Types[r.Members.Kind()] += len(keys)
		}
	} else {
		types, err := typesOf(ctx, c, keys)
		if err != nil {
			return err
		}
		for _, key := range keys {
			if is := types[key]; is != none { // it expired meanwhile
				p.Types[is]++
			}
		}
	}
	return nil
}

func (r *rule) finding(f *finding, book *proof.Book) Finding {
	return Finding{Rule: r.Name, Name: f.name(), Verdict: f.verdict, Why: f.why, Since: book.Mark(f.name()).At}
}

// read opens what the worker's last pass noted of a rule, and changes nothing of it.
func (s *Set) read(ctx context.Context, c caller, r *rule) (*proof.Book, error) {
	return proof.Open(ctx, reading{c, s.c.Layout}, proof.Options{
		Marks: marksKey(s.c.Layout, r.Name), State: stateKey(s.c.Layout, r.Name),
	})
}

type reading struct {
	caller
	layout guard.Layout
}

func (reading) Epoch() uint64          { return 0 }
func (reading) DryRun() bool           { return true }
func (r reading) Layout() guard.Layout { return r.layout }

// Explain looks at one key or member (key, space, member), spelled as in reports, and returns the
// finding of the rule that covers it.
func (s *Set) Explain(ctx context.Context, key string) ([]Finding, error) {
	c := plainly{s.c.Client}
	servers, err := masters(ctx, s.c.Client, nodeTimeout)
	if err != nil {
		return nil, err
	}
	home, err := homeOf(servers, s.c.Layout)
	if err != nil {
		return nil, err
	}
	all := []Finding{}
	for _, r := range s.rules {
		one := r.ofName(key)
		if one == nil {
			continue
		}
		found, err := r.look(ctx, c, s.c.Source, home, []*candidate{one})
		if err != nil {
			return nil, err
		}
		book, err := s.read(ctx, c, r)
		if err != nil {
			return nil, err
		}
		all = append(all, r.finding(found[0], book))
	}
	return all, nil
}

type plainly struct{ client redis.UniversalClient }

func (p plainly) Client() redis.UniversalClient { return p.client }
func (plainly) PageSize() int                   { return pipelined }

func (plainly) Call(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return f(ctx)
}

type inTurn struct {
	plainly
	turn *sync.Mutex
}

func (c inTurn) Call(ctx context.Context, f func(context.Context) error) error {
	c.turn.Lock()
	defer c.turn.Unlock()
	return c.plainly.Call(ctx, f)
}

const (
	// candidates for which a common result means something
	many = 5
	// candidates at which the worker holds a rule if more than half are condemned
	most = 20
)

func (s sign) isKey() bool { return s.key != nil && s.Kind != "channel" }

// describe names a sign of life as the rule does.
func (r *rule) describe(i int) string {
	s, of := r.life[i], ""
	if s.Mongo != nil {
		of = s.Mongo.Collection
	}
	return strings.Join(strings.Fields(fmt.Sprintf("keep_if[%d] %s %s %s %s %s", i, s.Kind, of, s.Key, s.Of, s.Field)), " ")
}

// meets counts keys of the walk that could be signs, or candidates in braces.
func (r *rule) meets(p *Plan, key string) {
	for i, s := range r.life {
		if s.isKey() && len(s.key.Variables()) > 0 {
			if _, ok := s.key.Match(key); ok {
				p.met[i]++
			}
		}
	}
	if _, is := r.key.Match(key); is || !strings.Contains(key, "{") {
		return
	}
	if _, would := r.key.Match(strings.NewReplacer("{", "", "}", "").Replace(key)); would {
		p.braced++
		p.sample = key
	}
}

// places are the keys without a variable that the rule looks at, with the type that it expects.
func (r *rule) places() map[string]string {
	all := map[string]string{r.fixed(): ""}
	if r.member != nil {
		all[r.fixed()] = r.Members.Kind()
	}
	for _, s := range r.signs() {
		if s.isKey() {
			all[rules.Literal(s.Key)] = s.Holds
		}
	}
	for _, key := range r.vital() {
		all[key] += "" // of any type, unless another expects one
	}
	delete(all, "") // what has variables
	return all
}

// vital are the places without which the rule is held.
func (r *rule) vital() (keys []string) {
	for _, ref := range r.UnlessLost {
		if ref.Exists != "" {
			keys = append(keys, rules.Literal(ref.Exists))
		}
		if ref.Channels != nil {
			keys = append(keys, rules.Literal(ref.Channels.When.HashNotEmpty))
		}
	}
	return keys
}

// advise adds findings about the rule itself.
func (r *rule) advise(ctx context.Context, c caller, all []*rule, p *Plan) error {
	into := func(list *[]string) func(string, ...any) {
		return func(format string, args ...any) { *list = append(*list, fmt.Sprintf(format, args...)) }
	}
	wrong, caution, note := into(&p.Wrong), into(&p.Cautions), into(&p.Notes)
	total := p.Scanned - p.Verdicts[foreign]
	vital, places := r.vital(), r.places()
	for _, key := range sorted(places) {
		switch is, want := p.Places[key], places[key]; {
		case is == none && slices.Contains(vital, key) && total > 0:
			wrong("%s is not there: the rule is held", key)
		case is == none:
			note("%s is not there", key)
		case want != "" && is != want:
			wrong("%s is a %s, and the rule takes it for a %s", key, is, want)
		}
	}
	for _, is := range sorted(p.Types) {
		if want := r.ReadType(); want != "" && is != want && r.Members == nil {
			wrong("%d candidates are a %s, and read: %s wants a %s: they are kept", p.Types[is], is, r.Read, want)
		}
	}
	switch dead, unread, judged := p.Verdicts[condemned], p.Verdicts[unreadable], p.Verdicts[condemned]+p.Verdicts[young]; {
	case total == 0 && p.braced > 0:
		caution("no key is a candidate, and %d have braces around what differs, such as %s: a template "+
			"with {{{id}}} stands for a variable in braces", p.braced, p.sample)
	case total == 0:
		note("no key is a candidate now")
	case unread > 0 && judged == 0 && (p.misread > 0 || unread == total && total >= many):
		wrong("none of the %d candidates that no sign keeps can be read, and all stay: %s", unread, p.unread)
	case unread > 0 && judged == 0:
		note("%d candidates cannot be read, and stay: %s", unread, p.unread)
	case 2*dead > total && total >= many:
		caution("%d of %d candidates are condemned: are the signs right? With %d candidates or more the worker holds the "+
			"rule once (mass_failure), and then deletes them", dead, total, most)
	case p.Verdicts[unknown] == total:
		note("no sign of life can be told of any candidate, so all are kept: see cleanup why, with one of them")
	}
	if n := p.Verdicts[foreign]; n > 0 {
		note("%d keys have other names or types than only, not and type want: they are left alone", n)
	}
	if n := p.Verdicts[large]; n > 0 && r.Bin == 0 {
		note("%d candidates are too large to be compared, and stay: with a bin they would be moved aside", n)
	}
	if len(p.Types) > 1 {
		caution("candidates are of several types: are all of them meant?")
	}
	switch {
	case p.Held == heldSource || p.Held != "" && total > 0:
		wrong("held: %s: %s", p.Held, p.Detail)
	case p.Held != "":
		note("held: %s: %s", p.Held, p.Detail)
	}
	if !r.Delete {
		note("it only reports: delete is not true")
	}
	if total == 0 || r.Of != "" { // a companion has its parent's signs
		return nil
	}
	for i, s := range r.life {
		if s.key == nil {
			continue
		}
		shows, err := r.shows(ctx, c, p, i)
		if err != nil {
			return err
		}
		text := fmt.Sprintf("keep_if[%d]: nothing is called %q", i, s.Key)
		switch {
		case shows:
		case s.foreseen(r, all):
			note("%s now", text)
		default:
			caution("%s, so it keeps nobody: is it spelled as the application does?", text)
		}
	}
	return nil
}

// shows reports whether something on the server could show a sign for some candidate. If not, its
// place may be misspelled.
func (r *rule) shows(ctx context.Context, c caller, p *Plan, i int) (there bool, err error) {
	s := r.life[i]
	if s.isKey() {
		is := p.Places[rules.Literal(s.Key)]
		return p.met[i] > 0 || is != "" && is != none, nil
	}
	err = c.Call(ctx, func(ctx context.Context) (err error) {
		there, err = channelsMatch(ctx, c.Client(), s.key.Glob())
		return err
	})
	return there, err
}

// foreseen reports whether a place may well be away: a list is while it is empty, one that
// unless_lost names, and another rule's candidates.
func (s sign) foreseen(r *rule, all []*rule) bool {
	return s.Holds == "list" || slices.ContainsFunc(r.UnlessLost, func(ref rules.Reference) bool {
		return ref.Channels != nil && ref.Channels.Pattern == s.key.Glob() || slices.Contains(ref.ExistsAny, s.Key)
	}) || slices.ContainsFunc(all, func(other *rule) bool { return other.Keys != "" && other.key.Glob() == s.key.Glob() })
}
