package cli

import "strings"

// nearest is ": did you mean X?" for the command that differs from a word in the fewest letters,
// at most two, or "".
func (c *Command) nearest(word string) string {
	best, least := "", 3
	for _, name := range c.words() {
		if d := distance(strings.ToLower(word), name); d < least && d < len(name) {
			best, least = name, d
		}
	}
	if best == "" {
		return ""
	}
	return ": did you mean " + best + "?"
}

// nearestFlag is ", did you mean --x?" for the flag that differs least from a word, in a quarter
// of its letters at most, or "".
func nearestFlag(word string, rows []Setting) string {
	best, least := "", len(word)/4+1
	for _, s := range rows {
		if d := distance(strings.ToLower(word), s.Flag()); d < least {
			best, least = s.Flag(), d
		}
	}
	if best == "" {
		return ""
	}
	return ", did you mean --" + best + "?"
}

// distance is how many letters must be added, dropped or changed to turn a into b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := before
			if a[i] != b[j] {
				change++
			}
			before = row[j+1]
			row[j+1] = min(change, before+1, row[j]+1)
		}
	}
	return row[len(b)]
}
