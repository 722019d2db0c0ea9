package orphan

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// Elements can have any size, and a command takes time in proportion to its answer.
const (
	wholeMemory = 256 << 10 // collection compared whole
	stepMemory  = 256 << 10 // elements of one command, estimated
	mostMemory  = 4 << 20   // collection of few elements: one may be nearly all of it
)

// groups excludes streams with many readers: each command about them, even MEMORY USAGE, counts
// groups or consumers one by one.
func (l *looking) groups(ctx context.Context, found map[string]*identity, keys []string) error {
	var streams, grouped []question
	for _, key := range keys {
		id := found[key]
		if id.kind != "stream" {
			continue
		}
		consumers := question{args: []string{"XINFO", "GROUPS", key}, told: func(answer *redis.Cmd) {
			all, _ := answer.Slice()
			sum := int64(0)
			for _, one := range all {
				n, _ := pairs(one)["consumers"].(int64)
				sum += n
			}
			if sum > mostConsumers {
				id.beyond = fmt.Sprintf("it has %d consumers, too many to be compared", sum)
			}
		}}
		streams = append(streams, question{args: []string{"XINFO", "STREAM", key}, told: func(answer *redis.Cmd) {
			switch n, _ := pairs(answer.Val())["groups"].(int64); {
			case n > mostGroups:
				id.beyond = fmt.Sprintf("it has %d groups of consumers, too many to be compared", n)
			case n > 0:
				grouped = append(grouped, consumers)
			}
		}})
	}
	if err := l.ask(ctx, streams); err != nil {
		return err
	}
	return l.ask(ctx, grouped)
}

// weigh asks for the memory of collections: exact if they may be compared whole, else estimated
// from some elements.
func (l *looking) weigh(ctx context.Context, found map[string]*identity, keys []string) error {
	var asked []question
	for _, key := range keys {
		id := found[key]
		if !id.exists || id.kind == "string" || id.beyond != "" {
			continue
		}
		samples := "0" // all
		if id.size > wholeElements {
			samples = "5"
		}
		asked = append(asked, question{
			args: []string{"MEMORY", "USAGE", key, "SAMPLES", samples},
			told: func(answer *redis.Cmd) {
				if n, err := answer.Int64(); err == nil {
					id.memory = n
				}
			},
		})
	}
	return l.ask(ctx, asked)
}

// heavy reports whether even a command for few elements might return too much.
func (id *identity) heavy() bool {
	return id.kind != "string" && id.size <= wholeElements && id.memory > mostMemory || id.memory/max(1, id.size) > mostMemory
}

func (id *identity) step() int64 {
	return max(1, min(pieceElements, stepMemory*id.size/max(1, id.memory)))
}

func (id *identity) each(n int64) int64 { return id.memory / max(1, id.size) * n }

// parts returns commands that read parts of a large value. SCAN begins with the same elements while
// the collection is unchanged, and nearly always with others after a change.
func (id *identity) parts(key string) [][]string {
	n := id.inPart()
	text := strconv.FormatInt(n, 10)
	last := strconv.FormatInt(n-1, 10)
	switch id.kind {
	case "list":
		return [][]string{{"LRANGE", key, "0", last}, {"LRANGE", key, "-" + text, "-1"}}
	case "zset":
		return [][]string{{"ZRANGE", key, "0", last}, {"ZRANGE", key, "-" + text, "-1"}}
	case "set":
		return [][]string{{"SSCAN", key, "0", "COUNT", text}}
	case "hash":
		return [][]string{{"HSCAN", key, "0", "COUNT", text}}
	case "stream":
		return [][]string{{"XRANGE", key, "-", "+", "COUNT", "1"}, {"XREVRANGE", key, "+", "-", "COUNT", "1"}}
	}
	return nil
}

func (id *identity) inPart() int64 { return min(128, id.step()) }

func (l *looking) measureMembers(ctx context.Context) error {
	if l.Members == nil || l.Members.Hash == "" {
		return nil
	}
	var asked []question
	for f := range l.undecided {
		if f.alone {
			continue
		}
		asked = append(asked, question{f: f, args: []string{"HSTRLEN", f.key, f.member}, told: func(answer *redis.Cmd) {
			if f.size, _ = answer.Int64(); f.size > mostField {
				f.keep(large, "its value has %d bytes, and may have %d", f.size, mostField)
			}
		}})
	}
	return l.ask(ctx, asked)
}
