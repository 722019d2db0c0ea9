// Package rules is the language of rules about orphans: the fields of a rule, its YAML, and checks
// for what is wrong or dangerous. Package orphan makes sweeps of rules.
//
//	all, err := rules.Parse(yaml)          // all faults at once, with their lines, as Faults
//	err = rules.Validate(all, layout)      // also whether they are about Rollcall's own keys
//	for _, text := range rules.Warnings(all) {
//		log.Warn(text)                 // legal, and could delete what lives
//	}
//
// A Rule is a plain struct, whose YAML has the names of its tags; Schema describes it to an editor.
// Its texts are templates of names: see Rule and Template. Packs and Pack have rules that are
// ready.
//
// # Whether two rules are about one key
//
// Validate refuses rules that could delete what they or others rely on, and Warnings names those
// that could meet. Both compare templates as patterns: the bytes that each variable can hold, and
// the text between.
package rules
