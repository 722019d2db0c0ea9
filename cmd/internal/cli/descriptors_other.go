//go:build !unix

package cli

import "math"

// OpenFiles returns a bound, since the limit is unknown on this system.
func OpenFiles() int { return math.MaxInt }
