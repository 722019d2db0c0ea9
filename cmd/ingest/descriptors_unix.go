//go:build unix

package main

import (
	"math"
	"syscall"
)

// openFiles is how many files this process may open. The runtime has raised the limit as far as it
// may be.
func openFiles() int {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil || uint64(l.Cur) > math.MaxInt {
		return math.MaxInt
	}
	return int(l.Cur)
}
