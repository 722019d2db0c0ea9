package orphan

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// dropOf is how many things one step drops: each is freed behind the scenes, however large it is.
const dropOf = 100

// dropBins drops what has been in the rule's bin for long enough. Nothing in a bin expires: Redis
// would free it at once, and hold everybody for as long as that takes. Bins of rules that are not
// in use any more are emptied by the first rule.
func (x *pass) dropBins(ctx context.Context) error {
	rules := []string{x.r.Rule}
	if x.r.Full && x.set.rules[0] == x.rule {
		var known []string
		err := x.Call(ctx, func(ctx context.Context) (err error) {
			known, err = x.Client().HKeys(ctx, passesKey(x.Layout())).Result()
			return err
		})
		if err != nil {
			return fmt.Errorf("orphan: passes: %w", err)
		}
		for _, name := range known {
			if !x.set.has(name) {
				rules = append(rules, name)
			}
		}
	}
	at, err := now(ctx, x.Pass, x.home)
	if err != nil {
		return err
	}
	for _, rule := range rules {
		for _, due := range []func(context.Context, string, string) ([]binned, error){x.due, x.dueOld} {
			for {
				entries, err := due(ctx, rule, strconv.FormatInt(at.UnixMilli(), 10))
				if err != nil {
					return fmt.Errorf("orphan: bin of rule %q: %w", rule, err)
				}
				if len(entries) == 0 {
					break
				}
				if err := x.drop(ctx, rule, entries); err != nil {
					return fmt.Errorf("orphan: bin of rule %q: %w", rule, err)
				}
			}
		}
	}
	return nil
}

// due are some entries whose time is over.
func (x *pass) due(ctx context.Context, rule, until string) (entries []binned, err error) {
	var ids []string
	err = x.Call(ctx, func(ctx context.Context) (err error) {
		ids, err = x.Client().ZRangeByScore(ctx, dropsKey(x.Layout(), rule),
			&redis.ZRangeBy{Min: "-inf", Max: until, Count: dropOf}).Result()
		return err
	})
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	var texts []any
	err = x.Call(ctx, func(ctx context.Context) (err error) {
		texts, err = x.Client().HMGet(ctx, binnedKey(x.Layout(), rule), ids...).Result()
		return err
	})
	for i, text := range texts {
		e := binned{ID: ids[i]} // nothing says where it is: it was restored, and half forgotten
		if text, ok := text.(string); ok {
			if e, err = readEntry(rule, text); err != nil {
				return nil, err
			}
		}
		entries = append(entries, e)
	}
	return entries, err
}

// dueOld are some of an old bin.
func (x *pass) dueOld(ctx context.Context, rule, until string) (entries []binned, err error) {
	var found []redis.Z
	err = x.Call(ctx, func(ctx context.Context) (err error) {
		found, err = x.Client().ZRangeByScoreWithScores(ctx, oldBinKey(x.Layout(), rule),
			&redis.ZRangeBy{Min: "-inf", Max: until, Count: dropOf}).Result()
		return err
	})
	for _, z := range found {
		e, err := readOld(rule, z.Member.(string), strconv.FormatFloat(z.Score, 'f', -1, 64))
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, err
}

// drop unlinks what entries name, and only then forgets them.
func (x *pass) drop(ctx context.Context, rule string, entries []binned) error {
	err := x.Call(ctx, func(ctx context.Context) error {
		_, err := x.Client().Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, e := range entries {
				if strings.HasPrefix(e.Aside, asideBegin) {
					pipe.Unlink(ctx, e.Aside)
				}
			}
			return nil
		})
		return err
	})
	if err != nil {
		return err
	}
	return x.Call(ctx, func(ctx context.Context) error {
		return Bins{Client: x.Client(), Layout: x.Layout()}.forget(ctx, rule, entries)
	})
}
