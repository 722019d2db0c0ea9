package orphan

import (
	"context"
	_ "embed"
	"slices"
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

	identifyWhole  = sameText + identifyText
	identifyScript = redis.NewScript(identifyWhole)
)

const none = "none"

// identify condemns the candidates that no sign keeps, and fingerprints them.
func (l *looking) identify(ctx context.Context) error {
	of := slices.Collect(l.undecided)
	// A stream that a consumer has read within two graces is in use.
	used := strconv.FormatInt(2*max(l.Grace, time.Second).Milliseconds(), 10)
	var keys []question
	for left := of; len(left) > 0; {
		n := 0
		for bytes := 0; n < min(len(left), pipelined) && bytes < answers; n++ {
			bytes += len(left[n].key) + len(left[n].member)
		}
		found, err := l.identities(ctx, left[:n], used)
		if err != nil {
			return err
		}
		for i, is := range found {
			l.identified(left[i], is, used)
		}
		left = left[len(found):]
	}
	for f := range l.undecided {
		if l.Members != nil {
			keys = append(keys, question{args: []string{"PEXPIRETIME", f.key}, told: func(answer *redis.Cmd) {
				if at, err := answer.Int64(); err == nil {
					f.keyExpires = at
				}
			}})
		}
		f.verdict, f.fingerprint = condemned, l.fingerprint(f)
	}
	return ask(ctx, l, keys)
}

// asked has what the script needs to identify a candidate: its key apart.
func (l *looking) asked(f *finding, used string) []string {
	if l.Members == nil {
		return []string{used}
	}
	return []string{used, f.member}
}

func (l *looking) identified(f *finding, is, used string) {
	parts := strings.Split(is, " ")
	switch {
	case is == none:
		f.keep(absent, "it is gone")
		return
	case l.Members != nil && parts[0] != l.Members.Kind() && is[0] != '-':
		f.keep(absent, "its key is a %s now", parts[0])
		return
	case len(parts) != 4 || is[0] == '-':
		f.keep(unknown, "what it is: %s", strings.TrimPrefix(is, "-"))
		return
	}
	kind := parts[0]
	n, _ := strconv.Atoi(parts[2])
	expires, _, _ := strings.Cut(parts[1], "/")
	f.expires, _ = strconv.ParseInt(expires, 10, 64)
	switch parts[3] {
	case "used":
		f.keep(alive, "a consumer has read it within %s ms", used)
	case "beyond":
		f.keep(large, "a %s like this, of %d, cannot be compared", kind, n)
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
	if kind == "string" || l.Members != nil {
		cost = 10 + n/hashRate
	}
	f.observations = append(f.observations, observation{
		args: append([]string{"IDENTITY", f.key}, l.asked(f, used)...), answer: is, cost: min(cost, 1000),
	})
}

// identities returns what the first of the candidates are, at least one.
func (l *looking) identities(ctx context.Context, of []*finding, used string) (found []string, err error) {
	if _, several := l.Client().(*redis.ClusterClient); several {
		return l.identitiesApart(ctx, of[:min(len(of), 50)], used)
	}
	keys, args := make([]string, len(of)), []any{used}
	for i, f := range of {
		keys[i], args = f.key, append(args, anys(l.asked(f, used)[1:])...)
	}
	err = l.Call(ctx, func(ctx context.Context) (err error) {
		found, err = identifyScript.Run(ctx, l.Client(), keys, args...).StringSlice()
		return err
	})
	return found[:min(len(found), len(keys))], err
}

// identitiesApart asks with one call for each.
func (l *looking) identitiesApart(ctx context.Context, of []*finding, used string) ([]string, error) {
	found, asked := make([]string, len(of)), make([]question, len(of))
	for i, f := range of {
		asked[i] = question{args: append([]string{"1", f.key}, l.asked(f, used)...), told: func(answer *redis.Cmd) {
			if all, err := answer.StringSlice(); err == nil && len(all) == 1 {
				found[i] = all[0]
			} else {
				found[i] = replyText(answer)
			}
		}}
	}
	return found, call(ctx, l, identifyWhole, asked)
}
