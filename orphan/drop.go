package orphan

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

const dropOf = 100

// dropBins drops things whose time in the bin is over. If they expired, Redis would free them at
// once and block everybody. The first rule also empties the bins of removed rules.
func (x *pass) dropBins(ctx context.Context) error {
	gone, err := x.rulesGone(ctx)
	if err != nil {
		return err
	}
	at, err := now(ctx, x.Pass, x.home)
	if err != nil {
		return err
	}
	for _, rule := range append(gone, x.r.Rule) {
		for _, due := range []dueSome{x.due, x.dueOld} {
			if err := x.dropDue(ctx, rule, strconv.FormatInt(at.UnixMilli(), 10), due); err != nil {
				return fmt.Errorf("orphan: bin of rule %q: %w", rule, err)
			}
		}
	}
	return nil
}

// rulesGone returns removed rules that had passes: only in full passes of the first rule.
func (x *pass) rulesGone(ctx context.Context) (gone []string, err error) {
	if !x.r.Full || x.set.rules[0] != x.rule {
		return nil, nil
	}
	err = x.Call(ctx, func(ctx context.Context) (err error) {
		gone, err = x.Client().HKeys(ctx, passesKey(x.Layout())).Result()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("orphan: passes: %w", err)
	}
	return slices.DeleteFunc(gone, x.set.has), nil
}

// dueSome skips the first `left` entries, and counts the unreadable.
type dueSome func(ctx context.Context, rule, until string, left int64) (entries []binned, unread int64, err error)

// dropDue leaves unreadable entries, as their things cannot be found.
func (x *pass) dropDue(ctx context.Context, rule, until string, due dueSome) error {
	for left := int64(0); ; {
		entries, unread, err := due(ctx, rule, until, left)
		if err != nil || len(entries) == 0 && unread == 0 {
			return err
		}
		left += unread
		if len(entries) == 0 {
			continue
		}
		if err := x.drop(ctx, rule, entries); err != nil {
			return err
		}
	}
}

func (x *pass) unread(key, entry string, err error) {
	if x.r.Full {
		x.Log().Warn("entry of a bin cannot be read, and stays until somebody deletes it",
			"rule", x.r.Rule, "key", key, "entry", fmt.Sprintf("%.200q", entry), "error", err)
	}
}

func (x *pass) due(ctx context.Context, rule, until string, left int64) (entries []binned, unread int64, err error) {
	var ids []string
	err = x.Call(ctx, func(ctx context.Context) (err error) {
		ids, err = x.Client().ZRangeByScore(ctx, dropsKey(x.Layout(), rule),
			&redis.ZRangeBy{Min: "-inf", Max: until, Offset: left, Count: dropOf}).Result()
		return err
	})
	if err != nil || len(ids) == 0 {
		return nil, 0, err
	}
	var texts []any
	err = x.Call(ctx, func(ctx context.Context) (err error) {
		texts, err = x.Client().HMGet(ctx, binnedKey(x.Layout(), rule), ids...).Result()
		return err
	})
	for i, text := range texts {
		e := binned{ID: ids[i]} // it was restored, and only half forgotten
		if text, ok := text.(string); ok {
			var no error
			if e, no = readEntry(rule, text); no != nil {
				x.unread(binnedKey(x.Layout(), rule), ids[i], no)
				unread++
				continue
			}
			e.ID = ids[i] // forget this id, whatever the entry holds
		}
		entries = append(entries, e)
	}
	return entries, unread, err
}

func (x *pass) dueOld(ctx context.Context, rule, until string, left int64) (entries []binned, unread int64, err error) {
	var found []redis.Z
	err = x.Call(ctx, func(ctx context.Context) (err error) {
		found, err = x.Client().ZRangeByScoreWithScores(ctx, oldBinKey(x.Layout(), rule),
			&redis.ZRangeBy{Min: "-inf", Max: until, Offset: left, Count: dropOf}).Result()
		return err
	})
	for _, z := range found {
		text := z.Member.(string)
		e, no := readOld(rule, text, strconv.FormatFloat(z.Score, 'f', -1, 64))
		if no != nil {
			x.unread(oldBinKey(x.Layout(), rule), text, no)
			unread++
			continue
		}
		entries = append(entries, e)
	}
	return entries, unread, err
}

// drop unlinks the entries' keys before it forgets the entries.
func (x *pass) drop(ctx context.Context, rule string, entries []binned) error {
	err := x.Call(ctx, func(ctx context.Context) error {
		_, err := x.Client().Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, e := range entries {
				if aside := string(e.Aside); strings.HasPrefix(aside, asideBegin) {
					pipe.Unlink(ctx, aside)
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
