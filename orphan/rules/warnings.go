package rules

import (
	"slices"
	"strings"
	"time"
)

// leastTime: a shorter one is surely a slip, and protects from nothing.
const leastTime = 2 * time.Second

// Warnings returns sentences about legal rules that could delete what lives, or what was not meant.
func Warnings(rules []Rule) (warnings []string) {
	_, warnings = check(rules, nil)
	return warnings
}

// dangers warns of places that may be lost with everybody alive, and of places of a library that
// the rule does not know.
func (c *checker) dangers() {
	var safe []string
	relied := 0
	for _, ref := range c.refs {
		if ref.lost && !ref.itself {
			safe = append(safe, ref.text)
		}
	}
	for _, ref := range c.refs {
		if ref.itself {
			continue
		}
		relied++
		named := slices.Contains(safe, ref.text) || len(safe) > 0 && ref.name == ""
		if ref.kind != "list" && !named && c.rule.GoneIf == nil {
			c.warn("%s: unless_lost does not name %q: if that key is lost, all candidates look dead", ref.field, ref.text)
		}
	}
	aged := c.rule.MinAge != nil && c.rule.MinAge.FromTTL == 0 // which protects by itself
	if relied == 0 && c.rule.GoneIf == nil && !aged {
		c.warn("nothing in unless_lost tells that what keep_if looks for was lost")
	}
	for _, l := range jobQueues {
		c.states(l)
	}
	const ping = "resque:worker:ping:"
	if c.key != nil && c.rule.Keys != "" && !strings.HasPrefix(c.rule.Keys, ping) && c.matches(ping+"web-1:101") {
		c.warn("keys: of node-resque, %sHOST:PID looks like a worker, too: leave it out with not", ping)
	}
	if c.rule.Members != nil && strings.HasSuffix(c.about.text, "_kombu.binding.reply.celery.pidbox") {
		c.warn("members: of kombu, all clients share the entries of %s: a living client gets no answers without", c.about.text)
	}
}

// A library keeps its jobs in several places. A rule that knows only some of them deletes jobs that
// live in the others.
type library struct {
	name, begin, end string // of a job's key, or of the hash of jobs
	places           []string
	finished         []string // of jobs with a time when they finished
}

var jobQueues = []library{
	{
		"BullMQ and Bull", "bull:", "",
		[]string{"completed", "failed", "delayed", "prioritized", "waiting-children", "wait", "active", "paused"},
		[]string{"completed", "failed"},
	},
	{"Bee-Queue", "bq:", "jobs", []string{"succeeded", "failed", "delayed", "waiting", "active"}, nil},
}

func (c *checker) matches(key string) bool {
	values, ok := c.key.Match(key)
	for name, value := range values {
		ok = ok && c.rule.Fits(name, value)
	}
	return ok
}

func (c *checker) states(l library) {
	queue, is := strings.CutSuffix(c.about.text, l.end)
	if l.end == "" { // the last variable is the job
		queue, is = queue[:strings.LastIndex(queue, ":")+1], c.key != nil && c.rule.Keys != "" && c.key.suffix() == ""
	}
	if !is || !strings.HasPrefix(queue, l.begin) || strings.Count(queue, ":") != 2 || c.rule.GoneIf != nil {
		return
	}
	missing := l.places
	if a := c.rule.MinAge; a != nil && a.Field == ".finishedOn" {
		missing = l.finished
	}
	missing = slices.DeleteFunc(slices.Clone(missing), func(place string) bool {
		return slices.ContainsFunc(c.refs, func(ref reference) bool { return !ref.lost && ref.text == queue+place })
	})
	if len(missing) > 0 {
		c.warn("keep_if: jobs of %s are also in %s: those that are only there look dead", l.name, strings.Join(missing, ", "))
	}
}
