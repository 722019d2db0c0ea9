package rules

import "strings"

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

func (s *subject) libraries() {
	for _, l := range jobQueues {
		s.states(l)
	}
	const ping = "resque:worker:ping:"
	if s.keys != nil && !strings.HasPrefix(s.rule.Keys, ping) && s.matches(ping+"web-1:101") {
		s.warn("keys: of node-resque, %sHOST:PID looks like a worker, too: leave it out with not", ping)
	}
	if m := s.rule.Members; m != nil && strings.HasSuffix(m.Key(), "_kombu.binding.reply.celery.pidbox") {
		s.warn("members: of kombu, all clients share the entries of %s: a living client gets no answers without", m.Key())
	}
}

func (s *subject) matches(key string) bool {
	values, ok := s.keys.Match(key)
	for name, value := range values {
		ok = ok && s.rule.Fits(name, value)
	}
	return ok
}

func (s *subject) states(l library) {
	text, end := s.rule.Keys, ""
	if m := s.rule.Members; m != nil {
		text, end = m.Hash, l.end
		if l.end == "" {
			return
		}
	}
	queue, is := strings.CutSuffix(text, end)
	if end == "" { // the last variable is the job
		queue, is = text[:strings.LastIndex(text, ":")+1], s.keys != nil && s.keys.suffix() == ""
	}
	if !is || !strings.HasPrefix(queue, l.begin) || strings.Count(queue, ":") != 2 || s.rule.GoneIf != nil {
		return
	}
	wanted := l.places
	if a := s.rule.MinAge; a != nil && a.Field == ".finishedOn" {
		wanted = l.finished
	}
	named := map[string]bool{}
	for _, sign := range s.rule.KeepIf {
		if m := sign.Member; m != nil {
			named[m.Set+m.ZSet+m.List] = true
		}
	}
	var missing []string
	for _, place := range wanted {
		if !named[queue+place] {
			missing = append(missing, place)
		}
	}
	if len(missing) > 0 {
		s.warn("keep_if: jobs of %s are also in %s: those that are only there look dead",
			l.name, strings.Join(missing, ", "))
	}
}
