package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/orphan"
)

func isDevice(id string) bool { return len(id) == 15 && strings.Trim(id, "0123456789") == "" }

// whyKey answers for a key, a member of one (key, space, member), or a worker's id. Without a verdict
// it does not exist, and only the log can explain that.
func (r *Reader) whyKey(ctx context.Context, w *Why, stopped *Finding, now time.Time) (Verdict, string, error) {
	passes, err := orphan.ReadPasses(ctx, r.client, r.keys)
	if err == nil && len(passes) > 0 {
		w.Marks, err = orphan.ReadMarks(ctx, r.client, r.keys, w.ID)
	}
	if err != nil && !Refused(err) {
		return "", "", err
	}
	if len(w.Marks) > 0 {
		verdict, text := marked(w.Marks[0], passes[w.Marks[0].Rule], stopped, now)
		return verdict, text, nil
	}
	if text, err := r.mirrored(ctx, w.ID, now); err != nil || text != "" {
		if len(w.Records) > 0 && text != "" {
			text += "; last found silent " + Ago(now.Sub(w.Records[0].At))
		}
		return Kept, text, err
	}
	kind, err := r.client.Type(ctx, w.ID).Result()
	if err != nil && !Refused(err) { // this user may be limited to the registry's keys
		return "", "", fmt.Errorf("inspect: type of the key: %w", err)
	}
	if err == nil && kind != "none" {
		text := "kept: the key is there, a " + kind
		if len(w.Records) > 0 && w.Records[0].Count > 0 {
			text += fmt.Sprintf(", again: the rule %s took it %s, and it was restored or made anew since",
				w.Records[0].Sweep, Ago(now.Sub(w.Records[0].At)))
		}
		if len(passes) > 0 {
			text += "; no rule has found it an orphan. cleanup why KEY shows each sign of life"
		}
		return Kept, text, nil
	}
	if len(passes) == 0 {
		return "", "", nil
	}
	bins, err := orphan.Bins{Client: r.client, Layout: r.keys}.List(ctx, "")
	if err != nil && !Refused(err) {
		return "", "", err
	}
	for _, b := range bins { // the newest wins
		if b.Key == w.ID && b.Member == "" || b.Key+" "+b.Member == w.ID {
			w.Bin = &b
		}
	}
	if w.Bin == nil || len(w.Records) > 0 {
		return "", "", nil
	}
	// Together with the one in the record.
	return Evicted, fmt.Sprintf("evicted %s with %s: the rule %s found that an orphan%s",
		Ago(now.Sub(w.Bin.Removed)), w.Bin.Name, w.Bin.Rule, binned(w.Bin, now)), nil
}

func binned(b *orphan.Binned, now time.Time) string {
	if b == nil {
		return ""
	}
	return fmt.Sprintf("; it is in the bin until %s, for %s more: rollcall restore %s puts it back",
		b.Until.UTC().Format("2006-01-02 15:04:05Z"), Short(b.Until.Sub(now)), b.ID)
}

func marked(m orphan.Mark, last janitor.Report, stopped *Finding, now time.Time) (Verdict, string) {
	found := fmt.Sprintf("the rule %s has found it an orphan for %s", m.Rule, Short(now.Sub(m.Since)))
	const unless = "unless it changes, or shows a sign of life (cleanup why KEY)"
	switch {
	case m.Reports:
		return Kept, fmt.Sprintf("kept: %s, and only reports: it does not say delete: true", found)
	case stopped != nil:
		return stopped.fate(found, unless)
	case last.Outcome == janitor.Held:
		return Kept, fmt.Sprintf("kept while the rule is held (%s; docs/runbook.md#why-a-rule-is-held): %s",
			join(last.Reason, last.Error), found)
	}
	return WillGo, fmt.Sprintf("will go when the rule's grace is over, %s: %s", unless, found)
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ": " + b
}

var mirrorKeys = []struct{ prefix, is string }{
	{"mitra:heartbeat:", "the last heartbeat of a mitra"},
	{"mitra:capacity:", "how many sessions a mitra has"},
	{"mitras:online", "the mitras who are online"},
	{"mitras:deactivated", "the mitras who may not work"},
	{"mitras:version", "the version that was applied of each mitra"},
	{"mitras:seeded", "the sign that the mirror is whole"},
	{"availability:", "a note that is recreated automatically"},
}

func (r *Reader) mirrored(ctx context.Context, id string, now time.Time) (string, error) {
	for _, k := range mirrorKeys {
		if !strings.HasPrefix(id, r.keys.Prefix+k.prefix) {
			continue
		}
		n, err := r.client.Exists(ctx, id).Result()
		if err != nil || n == 0 {
			return "", ignore(err)
		}
		return fmt.Sprintf("kept: it is %s, a part of availability's mirror of PostgreSQL; no sweep deletes it for "+
			"its age, and the next comparison corrects it", k.is), nil
	}
	p := r.client.Pipeline()
	version := p.HGet(ctx, r.keys.Prefix+"mitras:version", id)
	online := p.SIsMember(ctx, r.keys.Prefix+"mitras:online", id)
	revoked := p.SIsMember(ctx, r.keys.Prefix+"mitras:deactivated", id)
	beat := p.Get(ctx, r.keys.Prefix+"mitra:heartbeat:"+id)
	sessions := p.Get(ctx, r.keys.Prefix+"mitra:capacity:"+id)
	if err := exec(ctx, p, "the mirror"); err != nil || version.Err() != nil {
		return "", ignore(err)
	}
	state := "offline"
	if online.Val() {
		state = "online"
	}
	if revoked.Val() {
		state += ", deactivated"
	}
	last := "no heartbeat is known"
	if at, err := time.Parse(time.RFC3339, beat.Val()); err == nil {
		last = "its last heartbeat was " + Ago(now.Sub(at))
	}
	return fmt.Sprintf("kept: this mitra is %s in the mirror of PostgreSQL; %s; sessions: %s", state, last,
		or(sessions.Val(), "0")), nil
}

func ignore(err error) error {
	if Refused(err) || errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}
