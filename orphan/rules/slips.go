package rules

import (
	"fmt"
	"slices"
	"time"
)

func signTexts(s Sign) []string {
	texts := []string{s.Exists, s.Channel}
	if s.Field != nil {
		texts = append(texts, s.Field.Hash, s.Field.Field)
	}
	if s.Member != nil {
		texts = append(texts, s.Member.Set, s.Member.ZSet, s.Member.List, s.Member.Of)
	}
	if s.Score != nil {
		texts = append(texts, s.Score.ZSet, s.Score.Of)
	}
	if s.Mongo != nil {
		texts = append(texts, s.Mongo.ID)
	}
	if s.JSON != nil {
		texts = append(texts, s.JSON.Key, s.JSON.Is)
	}
	return slices.DeleteFunc(texts, func(text string) bool { return text == "" })
}

// windows warns of times that are surely a slip.
func (s *subject) windows() {
	r := s.rule
	short := func(at string, is, least time.Duration, why string) {
		if is > 0 && is < least {
			s.warn("%s: %s is short: %s", at, is, why)
		}
	}
	short("grace", r.Grace, leastGrace, "who shows no sign for a moment looks dead")
	if a := r.MinAge; a != nil {
		short("min_age.over", a.Over, leastWithin, "nearly everything is older")
	}
	for i, ref := range r.UnlessLost {
		short(fmt.Sprintf("unless_lost[%d].or_for", i), ref.OrFor, leastOrFor, "keys that are lost hold the rule for no longer")
	}
	const beats = "who beats once in a while looks dead in between"
	before := func(at string, m *Mongo) {
		if m == nil {
			return
		}
		for i, one := range m.All {
			short(fmt.Sprintf("%s.mongo.all[%d].before", at, i), one.Before, leastWithin, "who has just ended may still be read")
			if slices.Contains(one.In, "") {
				s.warn("%s.mongo.all[%d].in: has the empty text: a field that is not filled in yet decides", at, i)
			}
		}
	}
	for i, sign := range r.KeepIf {
		at := fmt.Sprintf("keep_if[%d]", i)
		if sign.Score != nil {
			short(at+".score.within", sign.Score.Within, leastWithin, beats)
		}
		if sign.Field != nil {
			short(at+".field.within", sign.Field.Within, leastWithin, beats)
		}
		if sign.JSON != nil {
			short(at+".json.within", sign.JSON.Within, leastWithin, beats)
		}
		before(at, sign.Mongo)
	}
	if r.GoneIf != nil {
		before("gone_if", r.GoneIf.Mongo)
	}
}
