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
			Name: "ExpiryIsAge", What: "an age that an expiry tells is believed at once",
			Edits: []harness.Edit{{From: "f.doubted = true", To: "f.doubted = false"}},
			Test:  theSearch, Of: searchDir, Steps: 3000,
		},
		{
			Name: "MissingIsEmpty", What: "a field that is missing holds the empty text",
			Edits: []harness.Edit{{From: "\t\t\tif !ok {\n\t\t\t\tf.keep(unreadable, \"it has no %s\", s.field)\n", To: "\t\t\tif !ok && false {\n"}},
			Test:  theSearch, Of: searchDir, Steps: 3000,
		},
		{
			Name: "NullIsMissing", What: "a field that is null is missing",
			Edits: []harness.Edit{{From: "value, has = object[name]\n", To: "value, has = object[name]\n\thas = has && value != nil\n"}},
			Test:  theSearch, Of: searchDir, Steps: 3000,
		},
		{
			Name: "UnreadableIsMissing", What: "a value that is none of JSON lacks every field",
			Edits: []harness.Edit{{From: "\t\tif object == nil {\n", To: "\t\tif false {\n"}},
			Test:  theSearch, Of: searchDir, Steps: 3000,
		},
		{
			Name: "AnExpiryIsNone", What: "an expiry is as good as none",
			Edits: []harness.Edit{{From: "over(f, at == -1,", To: "over(f, true,"}},
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
			Name: "SettledTwice", What: "on a Cluster an intent is counted by whoever comes",
			Edits: []harness.Edit{{From: "  redis.call('HDEL', KEYS[6], c.id)\n", To: ""}},
			Test:  theSearch, Of: searchDir, Places: onCluster, Steps: 3000,
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
	},
}
