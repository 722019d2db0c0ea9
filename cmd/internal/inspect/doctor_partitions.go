package inspect

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

var ofPartition = []string{"leader", "lease", "epoch", "witness", "hold", "index", "log"}

var ofPartitions = []check{
	{"partitions", checkPartitions}, {"masters", checkMasters}, {"size", checkSize},
}

// askEach returns the worst finding. A check that cannot decide is a warning.
func askEach(ctx context.Context, c check, patients []*patient) found {
	one := func(p *patient) found {
		f, err := c.ask(ctx, p)
		if err != nil {
			f = found{Warning, "could not be checked: " + err.Error()}
		}
		return f
	}
	if len(patients) == 1 {
		return one(patients[0])
	}
	parts := make([]*Reader, len(patients))
	at := map[*Reader]*patient{}
	for i, p := range patients {
		parts[i], at[p.Reader] = p.Reader, p
	}
	all, _ := each(ctx, parts, func(_ context.Context, part *Reader) (found, error) {
		return one(at[part]), nil
	})
	for _, level := range []Level{Wrong, Warning} {
		var which []int
		sentence := ""
		for i, f := range all {
			if f.level == level {
				which = append(which, patients[i].of...)
				if sentence == "" {
					sentence = f.sentence
				}
			}
		}
		if len(which) > 0 {
			slices.Sort(which)
			return found{level, named(which) + ": " + sentence}
		}
	}
	if !slices.ContainsFunc(all, func(f found) bool { return f.sentence != all[0].sentence }) {
		return all[0]
	}
	return found{OK, named(patients[0].of) + ": " + all[0].sentence + "; the others are fine too"}
}

func masters(ctx context.Context, parts []*Reader) ([]*patient, error) {
	where, err := each(ctx, parts, func(ctx context.Context, part *Reader) (string, error) {
		at, err := part.at(ctx)
		if node, ok := at.(*redis.Client); ok {
			return node.Options().Addr, err
		}
		return "", err
	})
	if err != nil {
		return nil, err
	}
	by := map[string]*patient{}
	var all []*patient
	for k, addr := range where {
		if by[addr] == nil {
			by[addr] = &patient{Reader: parts[k], master: addr}
			all = append(all, by[addr])
		}
		by[addr].of = append(by[addr].of, parts[k].number)
	}
	for _, p := range all {
		if p.server, err = p.Reader.server(ctx); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (s *survey) patients(of Status, servers []*patient) []*patient {
	if len(s.parts) == 1 {
		return []*patient{{Reader: s.parts[0], server: s.server, status: of, of: []int{0}}}
	}
	all := make([]*patient, len(s.parts))
	for k, part := range s.parts {
		l := s.looks[k]
		st := of
		st.Now, st.Leader, st.Hold, st.Witness, st.Heard = l.now, l.leader, l.hold, l.witness,
			l.witness.heard(l.now)
		all[k] = &patient{Reader: part, status: st, of: []int{k}}
	}
	for _, server := range servers {
		for _, k := range server.of {
			all[k].server = server.server
			all[k].status.Redis = server.server
		}
	}
	return slices.DeleteFunc(all, func(p *patient) bool { return s.looks[p.of[0]].unread })
}

func checkPartitions(_ context.Context, p *patient) (found, error) {
	of := p.status.Partitions
	var texts []string
	for _, l := range of.Leaders {
		texts = append(texts, fmt.Sprintf("%s leads %d", l.Instance, len(l.Partitions)))
	}
	return fine("%d, as %s says; %s", of.Count, p.fleet.keys.Partitions(), or(few(texts), "nobody leads any"))
}

const uneven = 1

func checkMasters(ctx context.Context, p *patient) (found, error) {
	c, ok := p.client.(*redis.ClusterClient)
	if !ok {
		return fine("one server has all partitions")
	}
	var mu sync.Mutex
	count := map[string]int{}
	if err := c.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		count[node.Options().Addr] = 0
		return nil
	}); err != nil {
		return found{}, err
	}
	for _, server := range p.servers {
		count[server.master] = len(server.of)
	}
	for _, u := range p.status.Unread {
		count[u.Server] = len(u.Partitions)
	}
	share := (p.status.Partitions.Count + len(count) - 1) / len(count)
	var many, all []string
	for _, addr := range slices.Sorted(maps.Keys(count)) {
		all = append(all, fmt.Sprint(count[addr]))
		if count[addr] > share+uneven {
			many = append(many, fmt.Sprintf("%s has %d of %d", addr, count[addr], p.status.Partitions.Count))
		}
	}
	if len(many) > 0 {
		return warn("partitions are spread unevenly over %d masters: %s; move slots so that each master has an equal "+
			"range", len(count), few(many))
	}
	return fine("partitions are spread evenly: %s on %d masters", strings.Join(all, ", "), len(count))
}

// largest is the most entries of a partition whose slot still moves within a moment.
const largest = 100_000

func checkSize(_ context.Context, p *patient) (found, error) {
	of := p.status.Partitions
	if of.Most > largest {
		return warn("partition %d has %d entries: with more than %d, moving its slot blocks the server for "+
			"long; use more partitions at the next opportunity (REGISTRY_PARTITIONS)", of.Largest, of.Most, largest)
	}
	return fine("the largest has %d entries", of.Most)
}
