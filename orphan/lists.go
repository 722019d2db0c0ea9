package orphan

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"
)

const (
	// about 0.4 ms of Redis' time for LPOS
	mostList = 10_000
	// bytes of an answer that take as long as one compared element
	elementBytes = 8
)

// LPOS visits elements one by one, so it is bounded: a longer list cannot show that it lacks one.
func (l *looking) lists(ctx context.Context, s *sign) error {
	type place struct {
		f       *finding
		key, of string
	}
	var places []place
	lengths := map[string]int64{}
	for f := range l.undecided {
		key, ok := l.expand(f, s.key)
		if !ok {
			continue
		}
		if of, ok := l.expand(f, s.of); ok {
			places = append(places, place{f, key, of})
			lengths[key] = 0
		}
	}
	var asked []question
	for _, key := range sorted(lengths) {
		asked = append(asked, question{args: []string{"LLEN", key}, told: func(answer *redis.Cmd) {
			n, err := answer.Int64()
			if err != nil { // LPOS reports another type
				n = 0
			}
			lengths[key] = n
		}})
	}
	if err := l.ask(ctx, asked); err != nil {
		return err
	}
	// The deleting script asks in the same order, so a list that has grown does not reach LPOS there.
	var short, found []question
	for _, p := range places {
		if lengths[p.key] <= mostList {
			short = append(short, isShort(p.f, p.key))
		}
	}
	if err := l.observe(ctx, short); err != nil {
		return err
	}
	for _, p := range places {
		if p.f.verdict != "" {
			continue
		}
		args := []string{"LPOS", p.key, p.of, "MAXLEN", strconv.Itoa(mostList)}
		compared := elementBytes * min(lengths[p.key], mostList)
		found = append(found, question{f: p.f, args: args, size: compared, told: func(answer *redis.Cmd) {
			what := p.key + " " + p.of
			switch text := replyText(answer); {
			case text[0] == '-':
				p.f.keep(unknown, "%s: %s", what, text[1:])
			case text != "_":
				p.f.keep(alive, "%s is there", what)
			case lengths[p.key] > mostList:
				p.f.keep(unknown, "%s has %d elements, and %d are looked at", p.key, lengths[p.key], mostList)
			default:
				p.f.because("no %s", what)
				p.f.observations = append(p.f.observations,
					observation{args: args, answer: "_", cost: askCost + int(compared)/hashRate})
			}
		}})
	}
	return l.ask(ctx, found)
}

func isShort(f *finding, key string) question {
	return question{f: f, args: []string{"LINDEX", key, strconv.Itoa(mostList)}, told: func(answer *redis.Cmd) {
		switch is := replyText(answer); {
		case is[0] == '-':
			f.keep(unknown, "%s: %s", key, is[1:])
		case is != "_":
			f.keep(unknown, "%s has more than %d elements", key, mostList)
		}
	}}
}
