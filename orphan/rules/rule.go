package rules

import (
	"cmp"
	"regexp"
	"slices"
	"time"
)

// A Rule defines which keys, or members of a key, can be orphans, and when one is deleted. Its YAML
// has the names of the tags; see schema.json. Durations are as in Go: 10m, 3600s.
//
// Names of keys are templates: "match:{match}:ratings". A variable stands for one or more
// characters other than ':' and braces, and not the first one of the text after it. Signs know all
// variables of Keys, As and Bind. "{{" and "}}" are braces, also in names without variables. Only
// Related may end in a '*'.
type Rule struct {
	// Name appears in reports, metrics and the log: lower-case letters, digits, '-' and '_'.
	Name string `yaml:"name"`
	// Of is the rule that this one is a companion of: see Companions.
	Of string `yaml:"-"`
	// Category sums removals in the worker's statistics. Default: Name.
	Category string `yaml:"category,omitempty"`
	// Delete: false only reports.
	Delete bool `yaml:"delete,omitempty"`

	// Keys is the template of candidate keys. Either Keys or Members.
	Keys    string   `yaml:"keys,omitempty"`
	Members *Members `yaml:"members,omitempty"`
	// Only lists a variable's form: objectid, uuid, integer, or hex for at least 8 hexadecimal digits.
	// Another candidate is somebody else's.
	Only map[string]string `yaml:"only,omitempty"`

	// Not lists words that a variable is not. A candidate with one is somebody else's.
	Not map[string][]string `yaml:"not,omitempty"`
	// Type of a candidate key: string, hash, list, set, zset or stream. One of another type is
	// somebody else's.
	Type string `yaml:"type,omitempty" check:"hash list set stream string zset"`

	// Read is the content of a candidate key, or of a field of Members.Hash: json, hash or text. Any
	// other content is unreadable. Empty: it is not read, and its type decides how it is compared.
	Read string `yaml:"read,omitempty" check:"json hash text"`
	// Bind gives variables a field of the value: ".roomId", ".player.id"; or with read: text the whole
	// value: ".". If it is missing, empty, or neither text nor number, the candidate is unreadable.
	Bind map[string]string `yaml:"bind,omitempty"`

	// KeepIf are signs of life. One that shows, or has no answer, keeps the candidate.
	KeepIf []Sign `yaml:"keep_if,omitempty"`
	// GoneIf is positive evidence, without which the candidate is kept. KeepIf, GoneIf or both.
	GoneIf *Evidence `yaml:"gone_if,omitempty"`
	// UnlessLost has to hold, or the whole rule is held: reference_lost.
	UnlessLost []Reference `yaml:"unless_lost,omitempty"`
	// MinAge keeps candidates that are younger.
	MinAge *Age `yaml:"min_age,omitempty"`
	// Grace is how long a candidate has to be condemned, by the server's clock. Default 60s, with
	// GoneIf 0.
	Grace time.Duration `yaml:"grace,omitempty"`

	// Related are templates of keys that belong to the candidate, each a rule of its own: see
	// Companions. A final '*' stands for anything.
	Related []string `yaml:"related,omitempty"`
	// Bin is how long removed keys can be restored. 0: they are deleted.
	Bin time.Duration `yaml:"bin,omitempty"`
	// Cap is the most candidates that one pass removes. Default 1000.
	Cap int `yaml:"cap,omitempty"`
}

// WithDefaults fills in Category, Cap, and Grace unless it has GoneIf.
func (r Rule) WithDefaults() Rule {
	r.Category = cmp.Or(r.Category, r.Name)
	r.Cap = cmp.Or(r.Cap, defaultCap)
	if r.GoneIf == nil {
		r.Grace = cmp.Or(r.Grace, DefaultGrace)
	}
	return r
}

// Fits reports whether a variable may have this value, by Only and Not.
func (r Rule) Fits(variable, value string) bool {
	form, has := r.Only[variable]
	return (!has || HasForm(value, form)) && !slices.Contains(r.Not[variable], value)
}

var forms = map[string]*regexp.Regexp{
	"objectid": regexp.MustCompile(`^[0-9a-fA-F]{24}$`),
	"uuid":     regexp.MustCompile(`^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$`),
	"integer":  regexp.MustCompile(`^-?[0-9]+$`),
	"hex":      regexp.MustCompile(`^[0-9a-fA-F]{8,}$`),
}

// HasForm reports whether a value has this form of Rule.Only; false for an unknown form.
func HasForm(value, form string) bool {
	is, known := forms[form]
	return known && is.MatchString(value)
}

// ReadType returns the type of key that Read can read, or "".
func (r Rule) ReadType() string {
	switch r.Read {
	case "json", "text":
		return "string"
	case "hash":
		return "hash"
	}
	return ""
}

// Members are members of sorted sets or sets, or fields of hashes. Exactly one of ZSet, Set and
// Hash: one key, or with variables all that match and have the type.
type Members struct {
	ZSet string `yaml:"zset,omitempty"`
	Set  string `yaml:"set,omitempty"`
	Hash string `yaml:"hash,omitempty"`
	// As is the variable that a member's name becomes, with any character; or a template of the name,
	// such as "{host}:{pid}". Members of another form are left alone.
	As string `yaml:"as"`
}

// Key returns the template of the members' key.
func (m Members) Key() string { return m.ZSet + m.Set + m.Hash }

// Kind returns the type of that key.
func (m Members) Kind() string {
	switch {
	case m.ZSet != "":
		return "zset"
	case m.Hash != "":
		return "hash"
	}
	return "set"
}

// A Sign has exactly one field. Texts are templates.
type Sign struct {
	Exists string  `yaml:"exists,omitempty" check:"sign"` // this key exists
	Field  *Field  `yaml:"field,omitempty"`               // a hash has it
	Member *Member `yaml:"member,omitempty"`              // a set, sorted set or list has it
	// scored within the last Within
	Score   *Score `yaml:"score,omitempty"`
	Channel string `yaml:"channel,omitempty" check:"sign"` // has subscribers, on any node
	Value   *Value `yaml:"value,omitempty"`                // the candidate's own value has it
	JSON    *JSON  `yaml:"json,omitempty"`                 // a field of another key's JSON
	Mongo   *Mongo `yaml:"mongo,omitempty"`                // the document exists and meets all conditions
}

// A Place is where a sign shows, in one form for all signs.
type Place struct {
	Kind    string // exists, channel, field, time, member, score, json, value, mongo
	Holds   string // type of the key, if it matters
	Path    string // then of the field that names the key
	Key, Of string // templates; of mongo Of is the id
	Field   string // as in Rule.Bind
	In      []string
	Unit    string
	Within  time.Duration
	Mongo   *Mongo
}

// Place returns where the sign shows.
func (s Sign) Place() (p Place) {
	switch {
	case s.Exists != "":
		p = Place{Kind: "exists", Key: s.Exists}
	case s.Channel != "":
		p = Place{Kind: "channel", Key: s.Channel}
	case s.Field != nil:
		p = Place{Kind: "field", Holds: "hash", Path: "field.hash", Key: s.Field.Hash, Of: s.Field.Field, Unit: s.Field.Unit, Within: s.Field.Within}
		if p.Within > 0 {
			p.Kind = "time"
		}
	case s.Member != nil:
		m := s.Member
		p = Place{Kind: "member", Holds: "set", Key: m.Set + m.ZSet + m.List, Of: m.Of}
		switch {
		case m.ZSet != "":
			p.Holds = "zset"
		case m.List != "":
			p.Holds = "list"
		}
		p.Path = "member." + p.Holds
	case s.Score != nil:
		p = Place{Kind: "score", Holds: "zset", Path: "score.zset", Key: s.Score.ZSet, Of: s.Score.Of, Unit: s.Score.Unit, Within: s.Score.Within}
	case s.JSON != nil:
		p = Place{Kind: "json", Key: s.JSON.Key, Of: s.JSON.Is, Field: s.JSON.Field, Unit: s.JSON.Unit, Within: s.JSON.Within}
	case s.Value != nil:
		p = Place{Kind: "value", Field: s.Value.Field, In: s.Value.In}
	case s.Mongo != nil:
		p = Place{Kind: "mongo", Of: s.Mongo.ID, Mongo: s.Mongo}
	}
	return p
}

// Field is a field of a hash. With Unit and Within its value is a time, at most Within ago.
type Field struct {
	Hash   string        `yaml:"hash" check:"pair"`
	Field  string        `yaml:"field" check:"pair"`
	Unit   string        `yaml:"unit,omitempty" check:"ms s iso"` // ms or s since 1970, or iso: ISO 8601 with its zone
	Within time.Duration `yaml:"within,omitempty"`
}

// Member has exactly one of Set, ZSet and List. A list longer than 10,000 elements never proves
// that it lacks a member.
type Member struct {
	Set  string `yaml:"set,omitempty" check:"pair"`
	ZSet string `yaml:"zset,omitempty" check:"pair"`
	List string `yaml:"list,omitempty" check:"pair"`
	Of   string `yaml:"of" check:"pair"`
}

// Score is a member scored by a time.
type Score struct {
	ZSet   string        `yaml:"zset" check:"pair"`
	Of     string        `yaml:"of" check:"pair"`
	Unit   string        `yaml:"unit" check:"ms s"` // ms or s, since 1970
	Within time.Duration `yaml:"within"`
}

// JSON is a field of the JSON object that another key holds, of at most 64 KiB: it is Is, or with
// Unit and Within a time, at most Within ago. An object without the field is unknown.
type JSON struct {
	Key    string        `yaml:"key" check:"sign"`
	Field  string        `yaml:"field"` // as in Rule.Bind
	Is     string        `yaml:"is,omitempty" check:"names"`
	Unit   string        `yaml:"unit,omitempty" check:"ms s iso"` // as in Field
	Within time.Duration `yaml:"within,omitempty"`
}

// Value is a condition on what Read reads.
type Value struct {
	Field string   `yaml:"field" check:"value"` // as in Rule.Bind
	In    []string `yaml:"in"`
}

// Evidence that something is over has exactly one field.
type Evidence struct {
	Mongo *Mongo `yaml:"mongo,omitempty"`
	Value *Value `yaml:"value,omitempty"`
	// Missing is a field that the candidate's value lacks, as in Rule.Bind.
	Missing string `yaml:"missing,omitempty" check:"value"`
	// NoExpiry: the candidate has no expiry, and stays unchanged for the grace.
	NoExpiry bool `yaml:"no_expiry,omitempty"`
}

// Mongo is a document, found by its _id, that meets all conditions. The id is an ObjectID if
// Rule.Only declares its variable as one, else text.
type Mongo struct {
	Collection string      `yaml:"collection"`
	ID         string      `yaml:"id" check:"sign"`
	All        []Condition `yaml:"all"`
}

// Condition is about one field of a document: exactly one of In and Before.
type Condition struct {
	Field  string        `yaml:"field"` // dotted
	In     []string      `yaml:"in,omitempty"`
	Before time.Duration `yaml:"before,omitempty"` // a time at least so long ago
}

// A Reference is a place that a rule relies on. Exactly one field, with OrFor beside ExistsAny.
type Reference struct {
	// with variables, it is asked for each candidate, and those without it are kept
	Exists    string   `yaml:"exists,omitempty" check:"names"`
	ExistsAny []string `yaml:"exists_any,omitempty" check:"fixed"`
	// OrFor: also holds once none of ExistsAny has existed for this time, by the server's clock and
	// without a hold in between.
	OrFor    time.Duration `yaml:"or_for,omitempty"`
	Channels *Channels     `yaml:"channels,omitempty"`
}

// Channels contradict a hash: while the hash has fields, some channel has to match Pattern.
type Channels struct {
	Pattern string `yaml:"pattern"`
	When    When   `yaml:"when"`
}

// When is the condition of Channels.
type When struct {
	HashNotEmpty string `yaml:"hash_not_empty" check:"fixed"`
}

// An Age is how a candidate's age is known. One of FromTTL, Key, Field, Score.
type Age struct {
	Over time.Duration `yaml:"over"` // candidates that are not older are kept
	// FromTTL is the expiry that its writer gives it; the age is this less what is left. Other writers
	// may give another, so it has to be condemned for Over, too. Without an expiry it is unreadable.
	FromTTL time.Duration `yaml:"from_ttl,omitempty"`
	// Key holds the time, in Unit.
	Key string `yaml:"key,omitempty" check:"sign"`
	// Field of the candidate's value holds the time, in Unit.
	Field string `yaml:"field,omitempty" check:"value"`
	// Score: the member's score is the time, in Unit.
	Score bool   `yaml:"score,omitempty"`
	Unit  string `yaml:"unit,omitempty" check:"ms s iso"` // as in Field
	// IfMissing: first_seen takes the time of the mark if Key does not exist. Empty: unreadable.
	IfMissing string `yaml:"if_missing,omitempty" check:"first_seen"`
}
