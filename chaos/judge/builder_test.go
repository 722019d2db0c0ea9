package judge

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/chaos/history"
	"github.com/rollcall-redis/rollcall/registry"
)

// builder writes a history by hand, as the server would have recorded it. Each method is one thing
// that happens at builder.now; commands of one event are separated by " ; ". Bad histories are good
// ones that go wrong in one place.
type builder struct {
	facts   Facts
	history history.History
	now     time.Time
	alive   []string // beat with every tick
	token   string   // the lease's
	epoch   uint64
	n       uint64
	total   int
}

// The first instant of every history.
var once = time.UnixMilli(1_800_000_000_000)

func newBuilder() *builder {
	s := &builder{now: once, facts: Facts{
		Layout: registry.Layout{}, HeartbeatInterval: 2 * time.Second, HeartbeatTTL: 6 * time.Second, LeaseTTL: 3 * time.Second,
	}}
	s.holds("gap") // as a witness begins
	return s
}

func (s *builder) ms(d time.Duration) string { return strconv.FormatInt(s.now.Add(d).UnixMilli(), 10) }

// happens adds one event.
func (s *builder) happens(text string, args ...any) {
	var e history.Event
	for cmd := range strings.SplitSeq(fmt.Sprintf(text, args...), " ; ") {
		e.Commands = append(e.Commands, strings.Fields(cmd))
	}
	s.history = append(s.history, e)
}

func (s *builder) heartbeat(id string) string {
	return fmt.Sprintf("SET instance:heartbeat:%s %s/boot-%s PXAT %s ; SADD instances:roster %s", id, s.ms(0), id, s.ms(6*time.Second), id)
}

// boots begins the lives of instances, which beat from now on.
func (s *builder) boots(ids ...string) {
	for _, id := range ids {
		s.alive = append(s.alive, id)
		s.happens("%s", s.heartbeat(id))
	}
}

// dies ends it: its heartbeat expires in time.
func (s *builder) dies(id string) {
	s.alive = slices.DeleteFunc(s.alive, func(a string) bool { return a == id })
	for i := range s.facts.Sockets {
		if s.facts.Sockets[i].Instance == id && s.facts.Sockets[i].Ended.IsZero() {
			s.facts.Sockets[i].Ended = s.now
		}
	}
}

func (s *builder) expires(id string) { s.happens("DEL instance:heartbeat:%s", id) }

// registers has devices connect to an instance.
func (s *builder) registers(id string, imeis ...string) {
	for _, imei := range imeis {
		s.happens("%s ; HSET connections:registry %s %s ; SADD instance:devices:%s %s", s.heartbeat(id), imei, id, id, imei)
		s.facts.Sockets = append(s.facts.Sockets, Socket{IMEI: imei, Instance: id, Asked: s.now, Live: s.now})
	}
}

// leaves ends a device's socket, and releases says that its owner took the entry out.
func (s *builder) leaves(id, imei string) {
	for i := range s.facts.Sockets {
		if so := &s.facts.Sockets[i]; so.Instance == id && so.IMEI == imei {
			so.Ended = s.now
		}
	}
}

// A beat before and one after it say when a release happened, which it does not say itself.
func (s *builder) releases(id, imei string) {
	s.passes(time.Second)
	defer s.passes(time.Second)
	s.happens("HDEL connections:registry %s ; SREM instance:devices:%s %s", imei, id, imei)
}

// leads gives an instance the lease and opens its term.
func (s *builder) leads(id string) {
	s.token, s.epoch, s.n = id+"/token", uint64(s.now.UnixMicro()), 0
	s.happens("SET janitor:leader %s PXAT %s", s.token, s.ms(3*time.Second))
	s.happens("SET {janitor:leader}:epoch %d", s.epoch)
	s.happens("XADD janitor:log %d-0 leader %s term %s", s.epoch, id, s.token)
}

func (s *builder) tick() string {
	return fmt.Sprintf("HSET janitor:witness last %s gap 2000 grace 8000", s.ms(0))
}

func (s *builder) holds(reason string) {
	s.happens("%s ; HSET janitor:witness since %s hold %s reason %s", s.tick(), s.ms(0), s.ms(0), reason)
}

// passes lets time pass, with a tick of the witness each second.
func (s *builder) passes(d time.Duration) {
	for range d / time.Second {
		s.now = s.now.Add(time.Second)
		s.happens("%s", s.tick())
		if s.token != "" { // a lease that is there
			s.happens("PEXPIREAT janitor:leader %s", s.ms(3*time.Second))
		}
		for _, id := range s.alive {
			s.happens("%s", s.heartbeat(id))
		}
	}
}

// evicts is a batch, right by itself; what is wrong with it is done to its text.
func (s *builder) evicts(owner string, imeis ...string) string {
	s.n++
	s.total += len(imeis)
	list, _ := json.Marshal(imeis)
	leader, _, _ := strings.Cut(s.token, "/")
	return fmt.Sprintf("%s ; XADD janitor:log %d-%d leader %s owner %s sweep owners count %d reowned 0 imeis %s ; "+
		"HINCRBY janitor:witness evicted_total %d ; HDEL connections:registry %s ; SREM instance:devices:%s %s",
		s.tick(), s.epoch, s.n, leader, owner, len(imeis), list, len(imeis), strings.Join(imeis, " "), owner, strings.Join(imeis, " "))
}

// upToDeath is the beginning of most histories: a and b live, devices 1 to 3 are at a, which dies;
// b leads, and has listened for long enough to sweep.
func (s *builder) upToDeath() {
	tells(`
		boots a b
		leads b
		registers a 1 2 3
		passes 4s
		dies a
		passes 7s
		expires a
	`)(s)
}

// swept is how that ends well.
func (s *builder) swept() {
	tells(`
		upToDeath
		evicts a 1 2 3
		happens SREM instances:roster a
	`)(s)
}

// strikes is the harness' own doing, marked as such.
func (s *builder) strikes(text string, args ...any) {
	s.happens("SET %s it ; %s", history.FaultKey, fmt.Sprintf(text, args...))
}

// lives is a new life of the server, which holds what text writes.
func (s *builder) lives(text string, args ...any) {
	s.happens("%s restart ; %s", history.LifeCommand, fmt.Sprintf(text, args...))
}

// out says that an instance had no line from some time ago until now; "": nobody had.
func (s *builder) out(id string, ago time.Duration) {
	s.facts.Outages = append(s.facts.Outages, Outage{Instance: id, From: s.now.Add(-ago), Until: s.now})
}

// died notes a death now, for C6.
func (s *builder) died(id, how string, led bool) {
	s.facts.JanitorInterval, s.facts.Slack = 3*time.Second, time.Second
	s.facts.Deaths = append(s.facts.Deaths, Death{Instance: id, At: s.now, How: how, Led: led})
}

// seen is a look-up that began and ended some time from now.
func (s *builder) seen(imei, at string, from, until time.Duration) {
	s.facts.Lookups = append(s.facts.Lookups, Lookup{imei, at, s.now.Add(from), s.now.Add(until)})
}

// tells returns a history that is told line by line: what happens, as the methods of builder are
// called, and to whom. In commands <3s> is a time from then on, and <beat a>, <evicts a 1 2> and so
// on are what such a thing writes; "-" is nobody.
func tells(story string) func(s *builder) {
	return func(s *builder) {
		for line := range strings.Lines(story) {
			what, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			s.tell(what, rest)
		}
	}
}

func (s *builder) tell(what, rest string) {
	words := strings.Fields(rest)
	for i, word := range words {
		words[i] = strings.TrimPrefix(word, "-")
	}
	simple := map[string]func(){
		"": func() {}, "upToDeath": s.upToDeath, "swept": s.swept, "again": s.again, "most": s.most, "asked": s.asked,
		"restarts": s.restarts, "parked": s.parked, "moves": s.moves, "killed": s.killed,
	}
	of := map[string]func(string){
		"leads": s.leads, "dies": s.dies, "expires": s.expires, "holds": s.holds, "succeeds": s.succeeds, "hop": s.hop,
	}
	both := map[string]func(string, string){"leaves": s.leaves, "releases": s.releases}
	commands := map[string]func(string, ...any){"happens": s.happens, "strikes": s.strikes, "lives": s.lives}
	switch {
	case simple[what] != nil:
		simple[what]()
	case of[what] != nil:
		of[what](words[0])
	case both[what] != nil:
		both[what](words[0], words[1])
	case commands[what] != nil:
		commands[what]("%s", meant.ReplaceAllStringFunc(rest, s.means))
	default:
		s.tellMore(what, words, strings.Fields(rest))
	}
}

func (s *builder) tellMore(what string, words, as []string) {
	span := func(i int) time.Duration {
		d, err := time.ParseDuration(as[i])
		if err != nil {
			panic(err)
		}
		return d
	}
	switch what {
	case "boots":
		s.boots(words...)
	case "registers":
		s.registers(words[0], words[1:]...)
	case "passes":
		s.passes(span(0))
	case "later":
		s.now = s.now.Add(span(0))
	case "unsaid":
		s.history = s.history[:len(s.history)-1]
	case "lapses":
		s.token = ""
	case "planted":
		s.facts.Planted = map[string]bool{words[0]: true}
	case "out":
		s.out(words[0], span(1))
	case "died":
		s.died(words[0], strings.ReplaceAll(words[1], "-", " "), len(words) > 2)
	case "seen":
		s.seen(words[0], words[1], span(2), span(3))
	case "slow":
		s.slow(words[0], span(1), span(2))
	default:
		s.happens("%s", s.means("<"+strings.Join(append([]string{what}, as...), " ")+">"))
	}
}

var meant = regexp.MustCompile(`<[^>]*>`)

// means returns what such a word of a story writes.
func (s *builder) means(text string) string {
	words := strings.Fields(strings.Trim(text, "<>"))
	switch words[0] {
	case "tick":
		return s.tick()
	case "token":
		return s.token
	case "epoch":
		return fmt.Sprint(s.epoch)
	case "beat":
		return s.heartbeat(words[1])
	case "evicts":
		return s.evicts(words[1], words[2:]...)
	case "answers":
		return s.answersFor(words[1], words[2:]...)
	case "outcome":
		return s.outcome(words[1], words[2], words[3])
	}
	d, err := time.ParseDuration(words[0])
	if err != nil {
		panic(err)
	}
	return s.ms(d)
}
