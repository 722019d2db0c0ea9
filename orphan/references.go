package orphan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/janitor/proof"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// The keys are in the field's name, so that a changed rule begins anew.
func goneSince(keys []string) string { return "gone_since:" + strings.Join(keys, " ") }

type references struct {
	lost     string
	premises []observation     // must hold at the delete, too
	set      map[string]string // in the rule's state
	unset    []string
}

// references looks for the places that the rule relies on. book has what earlier passes noted.
func (r *rule) references(
	ctx context.Context, c caller, source Source, book *proof.Book, at time.Time,
) (*references, error) {
	found := &references{set: map[string]string{}}
	exists := func(key string) (there bool, err error) {
		key = rules.Literal(key)
		err = c.Call(ctx, func(ctx context.Context) error {
			n, err := c.Client().Exists(ctx, key).Result()
			there = n == 1
			return err
		})
		if there {
			found.premises = append(found.premises, observation{args: []string{"EXISTS", key}, answer: ":1", cost: askCost})
		}
		return there, err
	}
	for _, ref := range r.UnlessLost {
		var err error
		lost := ""
		switch {
		case ref.Exists != "":
			var there bool
			if there, err = exists(ref.Exists); !there {
				lost = ref.Exists + " does not exist"
			}
		case len(ref.ExistsAny) > 0:
			there := false
			for _, key := range ref.ExistsAny {
				if there, err = exists(key); there || err != nil {
					break
				}
			}
			lost = found.gone(ref, goneSince(ref.ExistsAny), there, book, at)
		default:
			lost, err = contradicts(ctx, c, ref.Channels)
		}
		if err != nil {
			return nil, fmt.Errorf("orphan: references of rule %q: %w", r.Name, err)
		}
		found.lost = cmp.Or(found.lost, lost)
	}
	for _, collection := range r.collections() {
		empty, err := source.Empty(ctx, collection)
		if err != nil {
			return nil, errors.Join(errSource, err)
		}
		if empty {
			found.lost = cmp.Or(found.lost, "collection "+collection+" is empty")
		}
	}
	return found, nil
}

func (found *references) gone(
	ref rules.Reference, field string, there bool, book *proof.Book, at time.Time,
) string {
	was := book.State(field)
	switch {
	case there && was != "":
		found.unset = append(found.unset, field)
	case !there && ref.OrFor > 0:
		ms, _ := strconv.ParseInt(was, 10, 64)
		since := time.UnixMilli(ms)
		if was == "" || since.Before(book.Listened()) || since.After(at) {
			found.set[field] = strconv.FormatInt(at.UnixMilli(), 10)
			since = at
		}
		if at.Sub(since) >= ref.OrFor {
			return ""
		}
		return fmt.Sprintf("none of %v exists, for %s; it counts from %s on", ref.ExistsAny, at.Sub(since), ref.OrFor)
	case !there:
		return fmt.Sprintf("none of %v exists", ref.ExistsAny)
	}
	return ""
}

func (l *looking) premised(ctx context.Context) error {
	for _, t := range l.premises {
		var asked []question
		for f := range l.undecided {
			if key, ok := l.expand(f, t); ok {
				asked = append(asked, question{f: f, args: []string{"EXISTS", key}, told: func(answer *redis.Cmd) {
					if replyText(answer) != ":1" {
						f.keep(unknown, "%s does not exist, which the rule relies on", key)
					}
				}})
			}
		}
		if err := l.observe(ctx, asked); err != nil {
			return err
		}
	}
	return nil
}

const likelyFields = 100

// contradicts reports a hash with fields while no channel has a subscriber.
func contradicts(ctx context.Context, c caller, ref *rules.Channels) (string, error) {
	var some []string // fields of the hash, likely to have a channel
	hash := rules.Literal(ref.When.HashNotEmpty)
	err := c.Call(ctx, func(ctx context.Context) (err error) {
		some, err = c.Client().HRandField(ctx, hash, likelyFields).Result()
		return err
	})
	if err != nil || len(some) == 0 {
		return "", err
	}
	matches := false
	err = c.Call(ctx, func(ctx context.Context) (err error) {
		matches, err = channelsMatch(ctx, c.Client(), ref.Pattern, likelyChannels(ref.Pattern, some)...)
		return err
	})
	if err != nil || matches {
		return "", err
	}
	return fmt.Sprintf("%s is not empty, and no channel matches %s", hash, ref.Pattern), nil
}
