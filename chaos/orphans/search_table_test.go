package orphans

import "github.com/rollcall-redis/rollcall/chaos/harness"

const (
	theSearch, searchDir = "TestSearch", "chaos/orphans/search"
)

// Places of the search that a mutant needs.
const (
	newest    = "^the_newest$" // fields expire
	onCluster = "^a_Cluster"
)

// searchMutants are what the search must notice, each within so many steps. The number is a bound,
// the same for all: it does not derive from what each of them takes.
var searchMutants = harness.Mutants{
	Dir: "orphan", Kept: searchDir + "/testdata/search.txt",
	All: []harness.Mutant{
		{
			Name: "MarksNeverAge", What: "marks count however long nobody looked",
			Edits: []harness.Edit{{From: "m.at.Before(x.began) && x.since(f) > longest(apart)", To: "m.at.Before(x.began) && x.since(f) > longest(apart) && false"}},
			Test:  theSearch, Of: searchDir, Steps: 3000,
		},
		{
			Name: "ExpiryIsAge", What: "an age that an expiry tells is believed at once",
			Edits: []harness.Edit{{From: "f.doubted = true", To: "f.doubted = false"}},
			Test:  theSearch, Of: searchDir, Steps: 3000,
		},
		{
			Name: "NoRead", What: "a rule that reads a hash, and no field of it, takes what is none",
			Edits: []harness.Edit{{From: "q.args = []string{\"HLEN\", f.key}", To: "continue"}},
			Test:  theSearch, Of: searchDir, Steps: 3000,
		},
		{
			Name: "MissingIsEmpty", What: "a field that is missing holds the empty text",
			Edits: []harness.Edit{{From: "l.text(f, s.field); {\n\t\tcase !ok:\n", To: "l.text(f, s.field); {\n\t\tcase !ok && false:\n"}},
			Test:  theSearch, Of: searchDir, Steps: 3000,
		},
		{
			Name: "NullIsMissing", What: "a field that is null is missing",
			Edits: []harness.Edit{{From: "value, has := object[name]\n", To: "value, has := object[name]\n\thas = has && value != nil\n"}},
			Test:  theSearch, Of: searchDir, Steps: 3000,
		},
		{
			Name: "UnreadableIsMissing", What: "a value that is none of JSON lacks every field",
			Edits: []harness.Edit{{From: "f.value = readJSON(v); f.value == nil {", To: "f.value = readJSON(v); false {"}},
			Test:  theSearch, Of: searchDir, Steps: 3000,
		},
		{
			Name: "AnExpiryIsNone", What: "an expiry is as good as none",
			Edits: []harness.Edit{{From: "f.keep(alive, \"it has an expiry\")", To: "f.because(\"it has an expiry\")"}},
			Test:  theSearch, Of: searchDir, Steps: 3000,
		},
		{
			Name: "PartsInTurn", What: "the parts of a name are bound in the wrong order",
			Edits: []harness.Edit{{
				File: "rules/template.go",
				From: "values[p.text], found = found[0], found[1:]",
				To:   "values[p.text], found = found[len(found)-1], found[:len(found)-1]",
			}},
			Test: theSearch, Of: searchDir, Steps: 3000,
		},
		{
			Name: "NoWordsExcluded", What: "a variable may be a word that the rule excludes",
			Edits: []harness.Edit{{File: "rules/rule.go", From: " && !slices.Contains(r.Not[variable], value)", To: " && (true || slices.Contains(r.Not[variable], value))"}},
			Test:  theSearch, Of: searchDir, Steps: 3000,
		},
		{
			Name: "AnyOwner", What: "what a value binds may be a word that the rule excludes",
			Edits: []harness.Edit{{From: "if !l.Fits(name, f.values[name]) {", To: "if false {"}},
			Test:  theSearch, Of: searchDir, Steps: 3000,
		},
		{
			Name: "OwnerInPart", What: "a value is bound in part",
			Edits: []harness.Edit{{From: "f.values[name] = text", To: "f.values[name] = text[1:]"}},
			Test:  theSearch, Of: searchDir, Steps: 3000,
		},
		{
			Name: "NoFieldExpiry", What: "the expiry of a member of a hash is not compared",
			Edits: []harness.Edit{{From: "if l.Members.Hash != \"\" {\n\t\t\t\texpiring", To: "if false {\n\t\t\t\texpiring"}},
			Test:  theSearch, Of: searchDir, Places: newest, Steps: 3000,
		},
		{
			Name: "NoOtherRule", What: "a rule does not hear what others keep",
			Edits: []harness.Edit{{From: "if err != nil || len(r.others) == 0 {", To: "if true {"}},
			Test:  theSearch, Of: searchDir, Steps: 3000,
		},
		{
			Name: "OthersHaveNoGrace", What: "a rule does not wait for as long as others do",
			Edits: []harness.Edit{{From: "f.othersGrace = max(f.othersGrace, other.graceFor(g))", To: "f.othersGrace = 0"}},
			Test:  theSearch, Of: searchDir, Steps: 3000,
		},
		{
			Name: "RelatedIsTaken", What: "a related key goes whoever else it belongs to",
			Edits: []harness.Edit{{From: "ok && l.belongs(t, key, f)", To: "ok"}},
			Test:  theSearch, Of: searchDir, Steps: 3000,
		},
		{
			Name: "BacklogCounts", What: "the breaker counts what is condemned for long as alive",
			Edits: []harness.Edit{{From: "of := x.r.Kept[alive] + newly", To: "of := x.r.Scanned"}},
			Test:  theSearch, Of: searchDir, Steps: 3000,
		},
		{
			Name: "NoBreaker", What: "the breaker never holds",
			Edits: []harness.Edit{{From: "if of >= breakerLeast && newly > of/2 {", To: "if false {"}},
			Test:  theSearch, Of: searchDir, Steps: 3000,
		},
		{
			Name: "VariablesGoOn", What: "a variable takes what follows it",
			Edits: []harness.Edit{{File: "rules/template.go", From: "p.ends += t.parts[i+1].text[:size]", To: "_ = size"}},
			Test:  theSearch, Of: searchDir, Steps: 3000,
		},
		{
			Name: "SettledTwice", What: "on a Cluster an intent is counted by whoever comes",
			Edits: []harness.Edit{{From: "  redis.call('HDEL', KEYS[6], c.id)\n", To: ""}},
			Test:  theSearch, Of: searchDir, Places: onCluster, Steps: 3000,
		},
		{
			Name: "NoStep", What: "nobody asks whether the clock was set",
			Edits: []harness.Edit{{From: "off.Abs() > clockStep", To: "off.Abs() > clockStep && false"}},
			Test:  theSearch, Of: searchDir, Steps: 3000,
		},
		{
			Name: "BrokenOffIsLooked", What: "a pass that broke off leaves the evidence as it was",
			Edits: []harness.Edit{{From: "\tif x.complete || x.DryRun() {\n", To: "\tif x.complete || !x.DryRun() {\n"}},
			Test:  theSearch, Of: searchDir, Steps: 3000,
		},
		{
			Name: "AnyTimeIsOne", What: "a zero time is long ago",
			Edits: []harness.Edit{{From: "known = ok && believed(at)", To: "known = ok || believed(at)"}},
			Test:  theSearch, Of: searchDir, Steps: 3000,
		},
		{
			Name: "RestoredForEver", What: "a field is restored without its expiry",
			Edits: []harness.Edit{{From: "if added == 1 and expires > 0 then", To: "if false then"}},
			Test:  theSearch, Of: searchDir, Places: newest, Steps: 3000,
		},
		{
			Name: "NoPieces", What: "of what is large nothing but its ends is compared",
			Edits: []harness.Edit{{From: "s.WriteString(piece + \"\\n\")", To: "_ = piece"}},
			Test:  theSearch, Of: searchDir, Steps: 3000,
		},
		{
			Name: "RelatedIsCompared", What: "on a Cluster an intent compares what the one before it has moved away",
			Edits: []harness.Edit{
				{From: "o.args[0] == \"PUBSUB\" || o.of != \"\" && o.of != key || slot", To: "o.args[0] == \"PUBSUB\" || slot"},
				{From: "if !own && o.args[1] == f.key && !f.alone || ", To: "if false && !own || false && "},
			},
			Test: theSearch, Of: searchDir, Places: onCluster, Steps: 3000,
		},
		{
			Name: "CountedWithEachPart", What: "on a Cluster what follows a candidate is counted as one more",
			Edits: []harness.Edit{
				{From: "o.args[0] == \"PUBSUB\" || o.of != \"\" && o.of != key || slot", To: "o.args[0] == \"PUBSUB\" || slot"},
				{From: "if !own && o.args[1] == f.key && !f.alone || ", To: "if false && !own || false && "},
				{From: "d.intents[0].Counts, d.intents[0].Related = 0, true", To: "d.intents[0].Related = true"},
			},
			Test: theSearch, Of: searchDir, Places: onCluster, Steps: 3000,
		},
		{
			Name: "OneWindow", What: "on a Cluster all that goes with a candidate has two seconds together",
			Edits: []harness.Edit{
				{From: "n == 0 || keys+len(found[n].gone) < stepOf", To: "keys >= 0"},
				{From: "if i >= stepOf {\n\t\t\td.left", To: "if i >= 1<<30 {\n\t\t\td.left"},
			},
			Test: theSearch, Of: searchDir, Places: onCluster, Steps: 3000,
		},
		{
			Name: "MarksOutliveServers", What: "on a Cluster marks of before a master was restarted count",
			Edits: []harness.Edit{{From: "if x.notes.state[serversWere] == is {", To: "if is != \"\" {"}},
			Test:  theSearch, Of: searchDir, Places: onCluster, Steps: 3000,
		},
	},
}
