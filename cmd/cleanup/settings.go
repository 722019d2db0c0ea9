package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/cleanup/internal/cycles"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/program"
	"github.com/rollcall-redis/rollcall/cmd/internal/reload"
	"github.com/rollcall-redis/rollcall/orphan"
	"github.com/rollcall-redis/rollcall/orphan/mongodb"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

type settings struct {
	program.Base

	program.Fleet

	rulesFile   string
	mongodbURI  cli.Secret
	mongodbFile string

	rules []rules.Rule // from rulesFile, or built in; set by check
}

// prefixes of our own variables: one of these without a setting was mistyped.
var prefixes = []string{"CLEANUP_", "HEARTBEAT_"}

func (s *settings) table() []cli.Setting {
	return slices.Concat(s.Base.Table(), []cli.Setting{
		{Name: "RULES", Value: cli.Text(&s.rulesFile),
			Meaning: "File of the rules, in YAML; or packs and files, with commas: `pack:bullmq,my.yaml`. " +
				"`cleanup rules` lists the packs. Empty: `pack:colyseus`, for a game backend on Colyseus and " +
				"MongoDB.",
			Consequence: "Read once, at start. Should be the same on all replicas: the leader's count."},
		{Name: "MONGODB_URI", Secret: true,
			Value: cli.Text((*string)(&s.mongodbURI)),
			Meaning: "`mongodb://` or `mongodb+srv://`, with the database: `mongodb://host:27017/game`. " +
				"Needed if a rule asks MongoDB.",
			Consequence: "A user that may only read is enough. While it is away, rules that ask it are held (`source`)."},
		s.mongodbFileRow(),
	}, s.Fleet.Table("CLEANUP", program.Defaults{
		Interval: "10s", TTL: "30s", Every: "5m", Prefix: "{cleanup}:",
		Prefixes: "Workers with one prefix are one fleet. The braces keep its keys on one server of a " +
			"Cluster. **Never** change it while [something is in a bin](runbook.md#change-cleanup_prefix).",
		Passes: "Each pass walks through all keys by SCAN. A key found once is judged again as soon as " +
			"its grace is over.",
	}))
}

func (s *settings) mongodbFileRow() cli.Setting {
	row := cli.File(&s.mongodbFile, "MONGODB_URI_FILE", func(path string) error {
		uri, err := reload.Read(reload.Line, path)
		s.mongodbURI = cli.Secret(uri)
		return err
	})
	row.Meaning = "File of the same, in its place: the URI holds a password."
	row.Consequence = "Read once, at start: a new password needs a restart."
	row.Check = func(in *cli.Input) { in.NotBoth("MONGODB_URI", "MONGODB_URI_FILE") }
	return row
}

// check finds settings that are valid alone but unsafe together, and reads the rules.
func (s *settings) check(in *cli.Input) {
	s.Fleet.Check(in, "CLEANUP", &s.Base)
	if err := s.readRules(); err != nil {
		name := cmp.Or(s.rulesFile, "built in")
		for line := range strings.Lines(err.Error()) {
			in.Fault("RULES (%s): %s", name, strings.TrimRight(line, "\n"))
		}
		return
	}
	if asks := asksMongoDB(s.rules); len(asks) > 0 && s.mongodbURI == "" && in.Understood("MONGODB_URI_FILE") {
		in.Fault("MONGODB_URI: expected mongodb://host:27017/DATABASE, since these rules ask MongoDB: %s; "+
			"or RULES without them; it is not set", strings.Join(asks, ", "))
	}
}

func (s *settings) readRules() (err error) {
	sources := []string{s.rulesFile}
	if _, err := os.Stat(s.rulesFile); err != nil { // a file's name may have a comma
		sources = strings.Split(s.rulesFile, ",")
	}
	s.rules = nil
	for _, source := range sources {
		rules, err := rulesOf(source)
		if err != nil && len(sources) > 1 {
			return fmt.Errorf("%s: %w", source, err)
		}
		if err != nil {
			return err
		}
		s.rules = append(s.rules, rules...)
	}
	for _, r := range s.rules {
		if category := cmp.Or(r.Category, r.Name); slices.Contains(cycles.Reserved(), category) {
			return fmt.Errorf("rule %q: no category may be named %s: the statistics have that for another thing",
				r.Name, category)
		}
	}
	if err := rules.Validate(s.rules, s.Layout()); err != nil {
		return err
	}
	s.rules = rules.Companions(s.rules)
	return nil
}

const pack = "pack:"

// rulesOf reads a pack, or a file; from "" the rules for Colyseus.
func rulesOf(source string) ([]rules.Rule, error) {
	if name, packed := strings.CutPrefix(cmp.Or(source, pack+"colyseus"), pack); packed {
		text, ok := rules.Pack(name)
		if !ok {
			return nil, fmt.Errorf("no such pack; there are %s", strings.Join(rules.Packs(), ", "))
		}
		return rules.Parse(text)
	}
	text, err := os.ReadFile(source)
	if path := new(os.PathError); errors.As(err, &path) {
		return nil, fmt.Errorf("cannot be read: %w", path.Err)
	}
	if err != nil {
		return nil, err
	}
	return rules.Parse(text)
}

func asksMongoDB(all []rules.Rule) (names []string) {
	for _, r := range all {
		asks := r.GoneIf != nil && r.GoneIf.Mongo != nil ||
			slices.ContainsFunc(r.KeepIf, func(s rules.Sign) bool { return s.Mongo != nil })
		if asks {
			names = append(names, r.Name)
		}
	}
	return names
}

func listRules() *cli.Command {
	var name string
	return &cli.Command{
		Name: "cleanup rules",
		About: `cleanup rules lists the packs: rules that are ready for the keys of a library.
RULES=pack:NAME runs one. With the name of a pack it prints its YAML, to copy and
change.`,
		Arguments: "[NAME]",
		Check: func(in *cli.Input) {
			if len(in.Args) > 1 {
				in.Fault("expected the name of one pack, or none")
				return
			}
			name = strings.Join(in.Args, "")
			if name != "" && !slices.Contains(rules.Packs(), name) {
				in.Fault("no pack %q; there are %s", name, strings.Join(rules.Packs(), ", "))
			}
		},
		Run: func(_ context.Context, stdout, _ io.Writer) error {
			if name != "" {
				text, _ := rules.Pack(name)
				_, err := stdout.Write(text)
				return err
			}
			rows := [][]string{}
			for _, name := range rules.Packs() {
				text, _ := rules.Pack(name)
				about, _, _ := strings.Cut(strings.TrimPrefix(string(text), "# Pack "+name+": "), "\n")
				rows = append(rows, []string{name, about})
			}
			if err := cli.Columns(stdout, rows...); err != nil {
				return err
			}
			_, err := fmt.Fprintln(stdout, "\nRULES=pack:NAME runs one, cleanup rules NAME prints it.")
			return err
		},
		Notes: "Exit status: 0 if it was printed, 2 on wrong usage.",
	}
}

// source remembers whether the last call succeeded, for the status.
type source struct {
	db *mongodb.Source

	mu     sync.Mutex
	last   time.Time // when it last answered
	failed error
}

type mongoStatus struct {
	Asked bool `json:"asked"`
	// LastAnswer is to this process; only a leader asks.
	LastAnswer time.Time `json:"last_answer,omitzero"`
	Error      string    `json:"error,omitempty"`
}

// openSource returns nil if no rule asks MongoDB. It does not wait for the server.
func openSource(s *settings) (*source, error) {
	if len(asksMongoDB(s.rules)) == 0 {
		return nil, nil
	}
	db, err := mongodb.Connect(string(s.mongodbURI))
	if err != nil {
		return nil, err
	}
	return &source{db: db}, nil
}

// orNil avoids a nil pointer in the interface, which package orphan would take for a source.
func (s *source) orNil() orphan.Source {
	if s == nil {
		return nil
	}
	return s
}

func (s *source) Documents(ctx context.Context, q orphan.Query) (map[string]orphan.Document, error) {
	found, err := s.db.Documents(ctx, q)
	s.note(err)
	return found, err
}

func (s *source) Empty(ctx context.Context, collection string) (bool, error) {
	empty, err := s.db.Empty(ctx, collection)
	s.note(err)
	return empty, err
}

func (s *source) note(err error) {
	if errors.Is(err, context.Canceled) { // the caller went away
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed = err; err == nil {
		s.last = time.Now()
	}
}

func (s *source) status() mongoStatus {
	if s == nil {
		return mongoStatus{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := mongoStatus{Asked: true, LastAnswer: s.last}
	if s.failed != nil {
		st.Error = s.failed.Error()
	}
	return st
}

const closeBound = time.Second

func (s *source) close(ctx context.Context) error {
	if s == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeBound)
	defer cancel()
	return s.db.Close(ctx)
}
