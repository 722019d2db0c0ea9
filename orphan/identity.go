package orphan

import (
	"context"
	_ "embed"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed same.lua
	sameText string
	//go:embed identify.lua
	identifyText string

	identifyScript = redis.NewScript(sameText + identifyText)
)

const none = "none"

// identify condemns the candidates that no sign keeps, and fingerprints them.
func (l *looking) identify(ctx context.Context) error {
	var err error
	if l.Members == nil {
		err = l.identifyKeys(ctx)
	} else {
		err = l.identifyMembers(ctx)
	}
	for f := range l.undecided {
		f.verdict, f.fingerprint = condemned, l.fingerprint(f)
	}
	return err
}

func (l *looking) identifyKeys(ctx context.Context) error {
	keys, of := []string{}, []*finding{}
	for f := range l.undecided {
		keys, of = append(keys, f.key), append(of, f)
	}
	// A stream that a consumer has read within two graces is in use.
	used := strconv.FormatInt(2*max(l.Grace, time.Second).Milliseconds(), 10)
	for len(keys) > 0 {
		some := keys[:min(len(keys), pipelined)]
		found, err := l.identities(ctx, some, used)
		if err != nil {
			return err
		}
		for i, is := range found {
			l.identified(of[i], is, used)
		}
		keys, of = keys[len(found):], of[len(found):]
	}
	return nil
}

func (l *looking) identified(f *finding, is, used string) {
	parts := strings.Split(is, " ")
	switch {
	case is == none:
		f.keep(absent, "it is gone")
		return
	case len(parts) != 4 || is[0] == '-':
		f.keep(unknown, "what it is: %s", strings.TrimPrefix(is, "-"))
		return
	}
	kind, _, _ := strings.Cut(parts[0], "/")
	n, _ := strconv.Atoi(parts[2])
	expires, _, _ := strings.Cut(parts[1], "/")
	f.expires, _ = strconv.ParseInt(expires, 10, 64)
	switch parts[3] {
	case "used":
		f.keep(alive, "a consumer has read it within %s ms", used)
	case "beyond":
		f.keep(large, "a %s like this cannot be compared", kind)
	case "large":
		unit := "elements"
		if kind == "string" {
			unit = "bytes"
		}
		if f.because("its %d %s are too large to be compared", n, unit); l.Bin == 0 {
			f.keep(large, "with a bin it would be moved aside, which can be undone")
		}
	}
	cost := 10 + 2*n
	if kind == "string" {
		cost = 10 + n/hashRate
	}
	f.observations = append(f.observations, observation{
		args: []string{"IDENTITY", f.key, used}, answer: is, cost: min(cost, 1000),
	})
}

// identities returns what the first of the keys are, at least one.
func (l *looking) identities(ctx context.Context, keys []string, used string) (found []string, err error) {
	if _, several := l.Client().(*redis.ClusterClient); several {
		return l.identitiesApart(ctx, keys[:min(len(keys), 50)], used)
	}
	err = l.Call(ctx, func(ctx context.Context) (err error) {
		found, err = identifyScript.Run(ctx, l.Client(), keys, used).StringSlice()
		return err
	})
	return found[:min(len(found), len(keys))], err
}

// identitiesApart asks with one call for each key, whose servers may not know the script.
func (l *looking) identitiesApart(ctx context.Context, keys []string, used string) ([]string, error) {
	found := make([]string, len(keys))
	var asked, again []question
	for i, key := range keys {
		told := func(answer *redis.Cmd) {
			if all, err := answer.StringSlice(); err == nil && len(all) == 1 {
				found[i] = all[0]
			} else {
				found[i] = replyText(answer)
			}
		}
		asked = append(asked, question{
			args: []string{"EVALSHA", identifyScript.Hash(), "1", key, used},
			told: func(answer *redis.Cmd) {
				if told(answer); strings.HasPrefix(found[i], "-NOSCRIPT") {
					again = append(again, question{args: []string{"EVAL", sameText + identifyText, "1", key, used}, told: told})
				}
			},
		})
	}
	if err := l.ask(ctx, asked); err != nil {
		return nil, err
	}
	return found, l.ask(ctx, again)
}

// identifyMembers compares a member by its score or value, and the expiry of a field.
func (l *looking) identifyMembers(ctx context.Context) error {
	var asked, expiring, keys []question
	for f := range l.undecided {
		asked = append(asked, question{f: f, args: l.membership(f), told: func(answer *redis.Cmd) {
			if there := replyText(answer); there == "_" || there == ":0" {
				f.keep(absent, "it is gone")
			}
		}})
		if l.Members.Hash != "" {
			expiring = append(expiring, question{f: f, args: []string{"HPEXPIRETIME", f.key, "FIELDS", "1", f.member},
				told: func(answer *redis.Cmd) { f.expiry(answer) }})
		}
		keys = append(keys, question{f: f, args: []string{"PEXPIRETIME", f.key}, told: func(answer *redis.Cmd) {
			if at, err := answer.Int64(); err == nil {
				f.keyExpires = at
			}
		}})
	}
	if err := l.measured(ctx, &asked); err != nil {
		return err
	}
	if err := l.observe(ctx, asked); err != nil {
		return err
	}
	if err := l.ask(ctx, keys); err != nil {
		return err
	}
	return l.fieldExpiries(ctx, expiring)
}

// measured drops questions about fields that are too long to be compared.
func (l *looking) measured(ctx context.Context, asked *[]question) error {
	if l.Members.Hash == "" {
		return nil
	}
	sizes := make([]question, 0, len(*asked))
	kept := make([]question, 0, len(*asked))
	for _, q := range *asked {
		sizes = append(sizes, question{args: []string{"HSTRLEN", q.f.key, q.f.member}, told: func(answer *redis.Cmd) {
			switch n, err := answer.Int64(); {
			case err != nil:
				q.f.keep(unknown, "its size: %v", err)
			case n > wholeBytes:
				q.f.keep(large, "its value has %d bytes, and may have %d", n, wholeBytes)
			default:
				q.size = n
				kept = append(kept, q)
			}
		}})
	}
	err := l.ask(ctx, sizes)
	*asked = kept
	return err
}

func (f *finding) expiry(answer *redis.Cmd) {
	text := replyText(answer)
	if text[0] == '-' {
		f.keep(unknown, "when it expires: %s", text[1:])
		return
	}
	f.observations = append(f.observations, observation{
		args: []string{"HPEXPIRETIME", f.key, "FIELDS", "1", f.member}, answer: text, cost: askCost,
	})
	if all, _ := answer.Int64Slice(); len(all) == 1 {
		f.expires = all[0]
	}
}
