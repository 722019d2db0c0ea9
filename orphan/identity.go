package orphan

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

func (l *looking) identify(ctx context.Context) error {
	if err := l.measureMembers(ctx); err != nil {
		return err
	}
	keys := map[string][]*finding{}
	var names []string
	var asked, expiring []question
	for f := range l.undecided {
		add := func(key string) {
			if keys[key] == nil {
				names = append(names, key)
			}
			if !slices.Contains(keys[key], f) { // two patterns found it, or SCAN returned it twice
				keys[key] = append(keys[key], f)
			}
		}
		switch {
		case f.alone:
		case l.candidates != nil:
			add(f.key)
		default:
			asked = append(asked, question{f: f, args: l.membership(f), size: f.size, told: func(answer *redis.Cmd) {
				if there := replyText(answer); there == "_" || there == ":0" {
					f.keep(absent, "it is gone")
				}
			}})
			if l.Members.Hash != "" {
				expiring = append(expiring, question{f: f, args: []string{"HPEXPIRETIME", f.key, "FIELDS", "1", f.member},
					told: func(answer *redis.Cmd) { f.expiry(answer) }})
			}
		}
		for _, t := range l.exact {
			if f.part {
				break
			}
			if key, ok := l.expand(f, t); ok && l.belongs(t, key, f) {
				add(key)
			}
		}
		for _, key := range f.related {
			add(key)
		}
	}
	if err := l.observe(ctx, asked); err != nil {
		return err
	}
	if err := l.fieldExpiries(ctx, expiring); err != nil {
		return err
	}
	names, err := l.unclaimed(ctx, names, keys)
	if err != nil {
		return err
	}
	found, err := l.identities(ctx, names)
	if err != nil {
		return err
	}
	for _, key := range names {
		for _, f := range keys[key] {
			if f.verdict != "" {
				continue
			}
			id := found[key]
			if id.exists {
				f.gone = append(f.gone, key)
			} else if key == f.key {
				f.keep(absent, "it is gone")
			}
			f.observations = append(f.observations, id.observations...)
			if id.pieces != "" && (f.alone || !slices.Contains(f.related, key)) {
				f.pieces = append(f.pieces, key+" "+id.pieces)
			}
			if id.beyond != "" {
				f.keep(large, "%s: %s", key, id.beyond)
			} else if id.used != "" {
				f.keep(alive, "%s: %s", key, id.used)
			}
		}
	}
	for f := range l.undecided {
		if f.alone && len(f.gone) == 0 {
			f.keep(absent, "its related keys are gone")
			continue
		}
		f.verdict, f.fingerprint = condemned, l.fingerprint(f)
	}
	return nil
}

// fingerprint identifies a candidate and the rule that judged it. It omits related keys that a
// pattern found, unless there is nothing else.
func (l *looking) fingerprint(f *finding) string {
	var s strings.Builder
	s.WriteString(l.meaning + "\n")
	found := make(map[string]bool, len(f.related))
	for _, key := range f.related {
		found[key] = true
	}
	for _, o := range f.observations {
		if f.alone || !found[o.of] {
			s.WriteString(strings.Join(o.args, " ") + " " + o.answer + "\n")
		}
	}
	for _, piece := range f.pieces {
		s.WriteString(piece + "\n")
	}
	return digest(s.String())[:16]
}

func (f *finding) expiry(answer *redis.Cmd) {
	text := replyText(answer)
	if text[0] == '-' {
		f.keep(unknown, "when it expires: %s", text[1:])
		return
	}
	f.observations = append(f.observations, observation{args: []string{"HPEXPIRETIME", f.key, "FIELDS", "1", f.member}, answer: text})
	if all, _ := answer.Int64Slice(); len(all) == 1 {
		f.expires = max(0, all[0])
	}
}

const (
	wholeBytes    = 64 << 10
	wholeElements = 512
)

type identity struct {
	exists       bool
	kind         string
	size         int64
	memory       int64 // estimated
	observations []observation
	pieces       string // digest of all content, if large
	used         string // why it is in use; "": no evidence
	beyond       string // why it cannot be compared; "": it can
}

var sizeOf = map[string]string{
	"string": "STRLEN", "hash": "HLEN", "list": "LLEN", "set": "SCARD", "zset": "ZCARD", "stream": "XLEN",
}

func (l *looking) identities(ctx context.Context, keys []string) (map[string]*identity, error) {
	found := make(map[string]*identity, len(keys))
	var asked []question
	observe := func(key string, told func(*identity, *redis.Cmd), args ...string) {
		asked = append(asked, question{args: args, told: func(answer *redis.Cmd) {
			id := found[key]
			id.observations = append(id.observations, observation{args, replyText(answer), bytesOf(answer), key})
			if told != nil {
				told(id, answer)
			}
		}})
	}
	for _, key := range keys {
		found[key] = &identity{}
		observe(key, func(id *identity, answer *redis.Cmd) {
			id.kind, _ = answer.Text()
			id.exists = id.kind != "" && id.kind != "none"
		}, "TYPE", key)
		observe(key, nil, "PEXPIRETIME", key)
	}
	if err := l.ask(ctx, asked); err != nil {
		return nil, err
	}
	asked = nil
	for _, key := range keys {
		if size := sizeOf[found[key].kind]; size != "" {
			observe(key, func(id *identity, answer *redis.Cmd) { id.size, _ = answer.Int64() }, size, key)
		}
	}
	if err := l.ask(ctx, asked); err != nil {
		return nil, err
	}
	if err := l.groups(ctx, found, keys); err != nil {
		return nil, err
	}
	if err := l.weigh(ctx, found, keys); err != nil {
		return nil, err
	}
	// Read large keys first: it makes a server go on rehashing, which changes their ends.
	for _, key := range keys {
		if id := found[key]; id.beyond == "" && id.isLarge() {
			if err := l.pieces(ctx, key, id); err != nil {
				return nil, err
			}
		}
	}
	asked = nil
	for _, key := range keys {
		switch id := found[key]; {
		case id.beyond != "":
		case id.heavy():
			id.beyond = "its elements are too large to be compared"
		case id.kind == "string" && id.size <= wholeBytes:
			observe(key, nil, "GET", key)
			asked[len(asked)-1].size = id.size
		case id.kind == "string":
			observe(key, nil, "GETRANGE", key, "0", strconv.Itoa(wholeBytes/2))
			half := int(id.size) / 2
			observe(key, nil, "GETRANGE", key, strconv.Itoa(half-wholeBytes/4), strconv.Itoa(half+wholeBytes/4))
			observe(key, nil, "GETRANGE", key, strconv.Itoa(-wholeBytes/2), "-1")
		case id.exists && id.size <= wholeElements && id.memory <= wholeMemory:
			observe(key, nil, "DUMP", key)
			asked[len(asked)-1].size = id.memory
		default:
			for _, args := range id.parts(key) {
				observe(key, nil, args...)
				asked[len(asked)-1].size = id.each(id.inPart())
			}
		}
	}
	return found, l.ask(ctx, asked)
}

func (id *identity) isLarge() bool {
	if id.kind == "string" {
		return id.size > wholeBytes
	}
	return id.exists && (id.size > wholeElements || id.memory > wholeMemory)
}
