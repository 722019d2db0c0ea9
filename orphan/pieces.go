package orphan

import (
	"context"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// Values too large for one command are read in pieces, so that none blocks the server for long.
const (
	pieceBytes    = wholeBytes
	pieceElements = wholeElements
	// 512 MiB of text, or 4 million elements
	mostPieces    = 8192
	piecesAtOnce  = 8
	mostGroups    = 64
	mostConsumers = 1000 // in all groups
)

func (l *looking) pieces(ctx context.Context, key string, id *identity) error {
	p := &pieces{looking: l, key: key, id: id, sum: sha1.New()}
	var err error
	switch id.kind {
	case "string":
		err = p.ranges(ctx, pieceBytes, "GETRANGE")
	case "list":
		err = p.ranges(ctx, id.step(), "LRANGE")
	case "zset":
		err = p.ranges(ctx, id.step(), "ZRANGE", "WITHSCORES")
	case "set":
		err = p.scan(ctx, 1, "SSCAN")
	case "hash":
		err = p.scan(ctx, 2, "HSCAN")
	case "stream":
		err = p.stream(ctx)
	default:
		id.beyond = "its type cannot be compared: " + id.kind
	}
	id.pieces = fmt.Sprintf("%x %x", p.sum.Sum(nil), p.bag)
	return err
}

type pieces struct {
	*looking
	key string
	id  *identity
	sum hash.Hash
	// sum of digests of unordered elements: even a read makes the server go on rehashing, after which
	// SCAN returns them in another order
	bag [2]uint64
}

func (p *pieces) add(told func(*redis.Cmd), args ...string) question {
	return question{args: args, told: func(answer *redis.Cmd) {
		text := replyText(answer)
		if text[0] == '-' {
			p.id.beyond = text[1:]
		}
		if elements, ok := answer.Val().([]any); ok { // independent of the piece's size
			text = ""
			for _, element := range elements {
				text += valueText(element) + "\n"
			}
		}
		_, _ = io.WriteString(p.sum, text)
		if told != nil {
			told(answer)
		}
	}}
}

func (p *pieces) ranges(ctx context.Context, step int64, command string, more ...string) error {
	if p.id.size > mostPieces*step {
		p.id.beyond = "it is too large to be compared"
		return nil
	}
	var asked []question
	for from := int64(0); from < p.id.size; from += step {
		args := []string{command, p.key, strconv.FormatInt(from, 10), strconv.FormatInt(from+step-1, 10)}
		q := p.add(nil, append(args, more...)...)
		if q.size = step; p.id.kind != "string" {
			q.size = p.id.each(step)
		}
		asked = append(asked, q)
	}
	for some := range slices.Chunk(asked, piecesAtOnce) {
		if err := p.ask(ctx, some); err != nil || p.id.beyond != "" {
			return err
		}
	}
	return nil
}

// scan reads by cursor, with the expiries of a hash's fields. An element has that many texts.
func (p *pieces) scan(ctx context.Context, texts int, command string) error {
	cursor := "0"
	for range mostPieces {
		var page []any
		err := p.ask(ctx, []question{{args: []string{command, p.key, cursor, "COUNT", strconv.FormatInt(p.id.step(), 10)},
			told: func(answer *redis.Cmd) {
				reply, err := answer.Slice()
				if err != nil || len(reply) != 2 {
					p.id.beyond = fmt.Sprintf("%s: %v", command, err)
					return
				}
				cursor, _ = reply[0].(string)
				page, _ = reply[1].([]any)
			}}})
		if err != nil {
			return err
		}
		var elements []string
		for some := range slices.Chunk(page, texts) {
			elements = append(elements, fmt.Sprintf("%q", some))
		}
		if command == "HSCAN" && len(page) > 0 {
			err = p.expiries(ctx, page, elements)
		}
		for _, element := range elements {
			d := sha1.Sum([]byte(element))
			p.bag[0] += binary.BigEndian.Uint64(d[:])
			p.bag[1] += binary.BigEndian.Uint64(d[8:])
		}
		if err != nil || cursor == "0" || p.id.beyond != "" {
			return err
		}
	}
	p.id.beyond = "it is too large to be compared"
	return nil
}

func (p *pieces) expiries(ctx context.Context, page []any, elements []string) error {
	args := []string{"HPEXPIRETIME", p.key, "FIELDS", strconv.Itoa(len(elements))}
	for i := 0; i < len(page); i += 2 {
		field, _ := page[i].(string)
		args = append(args, field)
	}
	return p.fieldExpiries(ctx, []question{{args: args, told: func(answer *redis.Cmd) {
		at, err := answer.Int64Slice()
		if err != nil || len(at) != len(elements) {
			p.id.beyond = fmt.Sprintf("when its fields expire: %v", err)
			return
		}
		for i := range elements {
			elements[i] += strconv.FormatInt(at[i], 10)
		}
	}}})
}

// stream reads what changes with every entry and group. Entries never change.
func (p *pieces) stream(ctx context.Context) error {
	var groups []string
	err := p.ask(ctx, []question{
		p.add(nil, "XINFO", "STREAM", p.key),
		p.add(func(answer *redis.Cmd) {
			all, _ := answer.Slice()
			for _, one := range all {
				name, _ := pairs(one)["name"].(string)
				groups = append(groups, name)
			}
		}, "XINFO", "GROUPS", p.key),
	})
	if err != nil || p.id.beyond != "" {
		return err
	}
	var asked []question
	for _, group := range groups {
		pending := []string{"XPENDING", p.key, group}
		asked = append(asked, p.add(func(answer *redis.Cmd) {
			p.id.observations = append(p.id.observations,
				observation{pending, replyText(answer), bytesOf(answer), p.key})
		}, pending...), question{args: []string{"XINFO", "CONSUMERS", p.key, group}, told: p.consumers})
	}
	return p.ask(ctx, asked)
}

// A consumer's read changes only its idle time, which differs in every look anyway.
func (p *pieces) consumers(answer *redis.Cmd) {
	all, err := answer.Slice()
	if err != nil {
		p.id.beyond = err.Error()
	}
	for _, one := range all {
		ms, _ := pairs(one)["idle"].(int64)
		if idle := time.Duration(ms) * time.Millisecond; idle < longest(max(p.Grace, rules.LeastGrace)) {
			p.id.used = fmt.Sprintf("a consumer has read it %s ago", idle)
		}
	}
}

// fieldExpiries asks a server outside a Cluster only once if it lacks the command.
func (l *looking) fieldExpiries(ctx context.Context, asked []question) error {
	offered := true
	for i, q := range asked {
		asked[i].told = func(answer *redis.Cmd) {
			if err := answer.Err(); err != nil && strings.Contains(err.Error(), "unknown command") {
				offered = false
				return
			}
			q.told(answer)
		}
	}
	_, several := l.Client().(*redis.ClusterClient)
	if len(asked) > 1 && !several {
		if err := l.ask(ctx, asked[:1]); err != nil || !offered {
			return err
		}
		asked = asked[1:]
	}
	return l.ask(ctx, asked)
}

func pairs(reply any) map[string]any {
	all := map[string]any{}
	switch v := reply.(type) {
	case map[any]any:
		for name, value := range v {
			all[fmt.Sprint(name)] = value
		}
	case []any:
		for i := 0; i+1 < len(v); i += 2 {
			all[fmt.Sprint(v[i])] = v[i+1]
		}
	}
	return all
}

func sortedPairs(m map[any]any) string {
	all := pairs(m)
	var s strings.Builder
	for _, name := range sorted(all) {
		s.WriteString("|" + digest(name) + valueText(all[name]))
	}
	return "%" + s.String()
}
