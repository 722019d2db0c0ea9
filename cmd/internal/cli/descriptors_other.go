//go:build !unix

package cli

import "math"

// OpenFiles is how many files this process may open. On this system the limit is unknown.
func OpenFiles() int { return math.MaxInt }
