package orphan

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// A Survey is how a rule fits the keys of a live server.
type Survey struct {
	Rule string `json:"rule"`
	// Candidates are counted by the TYPE of their key.
	Candidates map[string]int `json:"candidates"`
	Samples    []string       `json:"samples"`
	// Places are the keys without a variable that the rule looks at, and their types.
	Places map[string]string `json:"places"`
	Odd    []Odd             `json:"odd"`
	// Cautions need a look before the rule deletes anything.
	Cautions []string `json:"cautions"`
	// Wrong keeps the rule from working.
	Wrong []string `json:"wrong"`
	// Notes may be intended.
	Notes []string `json:"notes"`
}

// Survey reads types but no values, and writes nothing. It scans all keys, as fast as Redis lets
// it.
func (s *Set) Survey(ctx context.Context, samples int) ([]Survey, error) {
	servers, err := masters(ctx, s.c.Client)
	if err != nil {
		return nil, err
	}
	all := make([]Survey, len(s.rules))
	err = s.together("survey", func(i int, r *rule, c caller, board boarding) (err error) {
		all[i], err = r.survey(ctx, c, func() *rider { return board(servers, r.lives().templates()...) }, samples)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func (r *rule) survey(ctx context.Context, c caller, board func() *rider, samples int) (v Survey, err error) {
	v = Survey{
		Rule: r.Name, Candidates: map[string]int{}, Samples: []string{}, Wrong: []string{}, Notes: []string{},
		Cautions: []string{},
	}
	wanted := r.places()
	if v.Places, err = typesOf(ctx, c, sorted(wanted)); err != nil {
		return v, err
	}
	var lost []string
	for _, key := range sorted(wanted) {
		is, want := v.Places[key], wanted[key]
		switch {
		case is == none && want.vital:
			lost = append(lost, key+" is not there: the rule is held")
		case is == none:
			v.Notes = append(v.Notes, key+" is not there")
		case want.kind != "" && is != want.kind:
			v.Wrong = append(v.Wrong, fmt.Sprintf("%s is a %s, and the rule takes it for a %s", key, is, want.kind))
		}
	}
	if is, one := v.Places[r.oneContainer()]; one && is != none && is != r.Members.Kind() {
		v.Wrong = append(v.Wrong, lost...)
		return v, nil
	}
	related, foreign, own := 0, 0, 0
	lives, forms := r.lives(), newShapes()
	err = r.walkAll(ctx, c, board(), lives.met, func(page []*candidate) error {
		var keys []string
		var ours []*candidate
		for _, one := range page {
			switch {
			case !r.ours(one):
				foreign++
				continue
			case one.alone:
				related++
				continue
			case one.member != "":
				v.Candidates[r.Members.Kind()]++
				forms.add(one, "", "")
			default:
				keys, ours = append(keys, one.key), append(ours, one)
				continue
			}
			if len(v.Samples) < samples {
				v.Samples = append(v.Samples, one.name())
			}
		}
		types, err := typesOf(ctx, c, keys)
		for _, one := range ours {
			is := types[one.key]
			if r.Type != "" && is != r.Type && is != none {
				foreign++
				continue
			}
			if v.Candidates[is]++; is != none {
				forms.add(one, is, "")
			}
			if rules.LooksOwn(one.key) {
				own++
			}
			if len(v.Samples) < samples {
				v.Samples = append(v.Samples, one.name())
			}
		}
		return err
	})
	if err != nil {
		return v, err
	}
	delete(v.Candidates, none) // it expired meanwhile
	if foreign > 0 {
		v.Notes = append(v.Notes,
			fmt.Sprintf("%d keys have other names or types than only, not and type want: they are left alone", foreign))
	}
	if len(v.Candidates) > 0 {
		v.Wrong = append(v.Wrong, lost...)
	} else { // nothing would be looked for there
		v.Notes = append(v.Notes, lost...)
	}
	r.judge(&v, related)
	if own > 0 {
		v.Cautions = append(v.Cautions, fmt.Sprintf("%d candidates have names of keys of a Rollcall fleet", own))
	}
	v.Odd = forms.odd()
	if forms.total > 0 {
		silent, err := lives.silent(ctx, r, c, v.Places)
		v.Cautions = append(v.Cautions, silent.cautions...)
		v.Notes = append(v.Notes, silent.notes...)
		return v, err
	}
	return v, nil
}

func (r *rule) judge(v *Survey, related int) {
	total := 0
	for is, n := range v.Candidates {
		total += n
		want := r.ReadType()
		if want != "" && is != want {
			v.Wrong = append(v.Wrong, fmt.Sprintf("%d candidates are a %s, and read: %s wants a %s: they are kept",
				n, is, r.Read, want))
		}
	}
	slices.Sort(v.Wrong)
	if total == 0 {
		v.Notes = append(v.Notes, "no key is a candidate now")
	}
	if len(v.Candidates) > 1 {
		v.Cautions = append(v.Cautions, "candidates are of several types: are all of them meant?")
	}
	if len(r.exact)+len(r.wild) > 0 && total > 0 && related == 0 {
		v.Notes = append(v.Notes, "no related key is there")
	}
	if !r.Delete {
		v.Notes = append(v.Notes, "it only reports: delete is not true")
	}
}

const none = "none"

type place struct {
	kind  string // "": any type
	vital bool   // the rule is held without it
}

func (r *rule) oneContainer() string {
	if r.container == nil {
		return ""
	}
	return rules.Literal(r.container.String())
}

func (r *rule) places() map[string]place {
	all := map[string]place{}
	add := func(t *rules.Template, kind string) {
		if t != nil && len(t.Variables()) == 0 {
			if key, ok := t.Expand(nil); ok && all[key].kind == "" {
				all[key] = place{kind: kind}
			}
		}
	}
	if r.container != nil {
		add(r.container, r.Members.Kind())
	}
	for _, s := range r.signs() {
		if s.kind != "channel" {
			add(s.key, s.holds)
		}
	}
	for _, ref := range r.UnlessLost {
		if ref.Exists != "" {
			all[ref.Exists] = place{kind: all[ref.Exists].kind, vital: true}
		}
		if ref.Channels != nil {
			hash := ref.Channels.When.HashNotEmpty
			all[hash] = place{kind: "hash", vital: all[hash].vital}
		}
	}
	return all
}

func typesOf(ctx context.Context, c caller, keys []string) (types map[string]string, err error) {
	types = make(map[string]string, len(keys))
	if len(keys) == 0 {
		return types, nil
	}
	err = c.Call(ctx, func(ctx context.Context) error {
		cmds, err := c.Client().Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, key := range keys {
				pipe.Type(ctx, key)
			}
			return nil
		})
		for i, cmd := range cmds {
			types[keys[i]] = cmd.(*redis.StatusCmd).Val()
		}
		return err
	})
	return types, err
}
