//go:build unix

package cli

import (
	"math"
	"syscall"
)

// OpenFiles returns the limit, which the runtime has raised as far as possible.
func OpenFiles() int {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil || uint64(l.Cur) > math.MaxInt {
		return math.MaxInt
	}
	return int(l.Cur)
}
