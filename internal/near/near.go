// Package near finds the name that somebody has mistyped.
package near

// Name returns the name that differs from word in the fewest letters, at most this many and not in
// all of its own; "" if there is none.
func Name(word string, names []string, most int) string {
	best, least := "", most+1
	for _, name := range names {
		if d := distance(word, name); d < least && d < len(name) {
			best, least = name, d
		}
	}
	return best
}

// distance is Levenshtein's.
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
