package chaos

import (
	"math/rand/v2"
	"slices"
)

// The random engine of the soak. What is drawn depends on the seed alone.

// A chance is a fault that may happen at any time, and how often compared with the others.
type chance struct {
	name   string
	weight int
	do     func(s *soak) int
}

// play has faults happen in random order, each as often as its weight says; then anew while more
// says so.
func play(rnd *rand.Rand, faults []chance, more func() bool, happen func(f chance)) {
	var deck []chance
	for _, f := range faults {
		deck = append(deck, slices.Repeat([]chance{f}, f.weight)...)
	}
	for again := true; again; again = more() {
		rnd.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		for _, f := range deck {
			happen(f)
		}
	}
}
