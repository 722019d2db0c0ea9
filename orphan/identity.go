package orphan

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed same.lua
	sameText string
	//go:embed ask.lua
	askText string

	askScript = sameText + askText
)

const none = "none"

// identify condemns the candidates that no sign keeps, and fingerprints them.
func (l *looking) identify(ctx context.Context) error {
	// A stream that a consumer has read within two graces is in use.
	used := strconv.FormatInt(2*max(l.Grace, time.Second).Milliseconds(), 10)
	var asked, keys []question
	for f := range l.undecided {
		args := []string{"IDENTITY", f.key, used}
		if l.Members != nil {
			args = append(args, f.member)
			keys = append(keys, question{args: []string{"PEXPIRETIME", f.key}, told: func(answer *redis.Cmd) {
				if at, err := answer.Int64(); err == nil {
					f.keyExpires = at
				}
			}})
		}
		asked = append(asked, question{f: f, args: args, told: func(answer *redis.Cmd) { l.identified(f, answer, used) }})
	}
	if err := l.observe(ctx, asked); err != nil {
		return err
	}
	for f := range l.undecided {
		f.verdict, f.fingerprint = condemned, l.fingerprint(f)
	}
	return ask(ctx, l, keys)
}

func (l *looking) identified(f *finding, answer *redis.Cmd, used string) {
	is, err := answer.Text()
	parts := strings.Split(is, " ")
	switch {
	case is == none:
		f.keep(absent, "it is gone")
		return
	case err != nil || len(parts) != 4:
		f.keep(unknown, "what it is: %v", cmp.Or(err, errors.New(is)))
		return
	case l.Members != nil && parts[0] != l.Members.Kind():
		f.keep(absent, "its key is a %s now", parts[0])
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
	f.observations[len(f.observations)-1].cost = min(cost, 1000)
}
