package orphan

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed restore.lua
var restoreText string

var restoreScript = redis.NewScript(restoreText)

// Binned is one thing in a bin: a key, or a member.
type Binned struct {
	ID      string    `json:"id"` // for Restore
	Rule    string    `json:"rule"`
	Name    string    `json:"name"`             // of the candidate that it went with
	Key     string    `json:"key"`              // as it was called
	Member  string    `json:"member,omitempty"` // of Key
	Removed time.Time `json:"removed"`
	Until   time.Time `json:"until"` // when the bin drops it
}

// binned is an entry of a bin, as delete.lua writes it.
type binned struct {
	ID      string  `json:"id"`
	Name    string  `json:"name"`
	Key     string  `json:"key"`
	Member  *string `json:"member,omitempty"`
	Aside   string  `json:"aside"`
	Expires float64 `json:"expires"` // ms; -1: never
	At      float64 `json:"at"`

	text  string
	until float64
	rule  *rule
}

func (b binned) shown() Binned {
	shown := Binned{
		ID: b.rule.Name + "/" + b.ID, Rule: b.rule.Name, Name: b.Name, Key: b.Key,
		Removed: time.UnixMilli(int64(b.At)), Until: time.UnixMilli(int64(b.until)),
	}
	if b.Member != nil {
		shown.Member = *b.Member
	}
	return shown
}

// inBins reads the bins of all rules that have one, the oldest first.
func (s *Set) inBins(ctx context.Context) (all []binned, err error) {
	servers, err := masters(ctx, s.c.Client)
	if err != nil {
		return nil, err
	}
	home, err := homeOf(servers, s.c.Layout)
	if err != nil {
		return nil, err
	}
	at, err := serverTime(ctx, home)
	if err != nil {
		return nil, err
	}
	for _, r := range s.rules {
		found, err := s.c.Client.ZRangeByScoreWithScores(ctx, binKey(s.c.Layout, r.Name),
			&redis.ZRangeBy{Min: strconv.FormatInt(at.UnixMilli(), 10), Max: "+inf"}).Result()
		if err != nil {
			return nil, fmt.Errorf("orphan: bin of rule %q: %w", r.Name, err)
		}
		for _, z := range found {
			b := binned{text: z.Member.(string), until: z.Score, rule: r}
			if err := json.Unmarshal([]byte(b.text), &b); err != nil {
				return nil, fmt.Errorf("orphan: bin of rule %q: %w", r.Name, err)
			}
			all = append(all, b)
		}
	}
	slices.SortStableFunc(all, func(a, b binned) int { return cmp.Compare(a.At, b.At) })
	return all, nil
}

// Bins lists what can be restored, of one rule or of all (""), the oldest first.
func (s *Set) Bins(ctx context.Context, rule string) ([]Binned, error) {
	found, err := s.inBins(ctx)
	all := []Binned{}
	for _, b := range found {
		if rule == "" || rule == b.rule.Name {
			all = append(all, b.shown())
		}
	}
	return all, err
}

// Restore puts back what has these ids, and returns what it put back. It overwrites nothing: where
// a name is in use again, or an id is unknown, the error says so, and the others are put back all
// the same. A key has its expiry again; what would have expired meanwhile stays in the bin.
func (s *Set) Restore(ctx context.Context, ids ...string) ([]Binned, error) {
	found, err := s.inBins(ctx)
	if err != nil {
		return nil, err
	}
	back := []Binned{}
	var errs []error
	for _, id := range ids {
		i := slices.IndexFunc(found, func(b binned) bool { return b.rule.Name+"/"+b.ID == id })
		if i < 0 {
			errs = append(errs, fmt.Errorf("orphan: restore %s: no bin has it", id))
			continue
		}
		if err := s.restore(ctx, found[i]); err != nil {
			errs = append(errs, fmt.Errorf("orphan: restore %s: %w", id, err))
			continue
		}
		back = append(back, found[i].shown())
	}
	return back, errors.Join(errs...)
}

func (s *Set) restore(ctx context.Context, b binned) error {
	kind, member := "key", ""
	if b.Member != nil {
		member = *b.Member
		switch m := b.rule.Members; {
		case m.ZSet != "":
			kind = "zset"
		case m.Set != "":
			kind = "set"
		default:
			kind = "hash"
		}
	}
	said, err := restoreScript.Run(ctx, s.c.Client, []string{b.Aside, b.Key}, kind, member, int64(b.Expires)).
		Text()
	if err != nil {
		return err
	}
	if said == "restored" || said == "gone" {
		// If this fails the entry says for a while what is there no more; nothing depends on it.
		err = s.c.Client.ZRem(ctx, binKey(s.c.Layout, b.rule.Name), b.text).Err()
	}
	switch said {
	case "restored":
		return err
	case "taken":
		return fmt.Errorf("%s is in use again; move that away first", b.Key)
	case "expired":
		return fmt.Errorf(
			"%s would have expired at %s",
			b.Key,
			time.UnixMilli(int64(b.Expires)).UTC().Format(time.RFC3339),
		)
	}
	return errors.New("the bin has dropped it")
}
