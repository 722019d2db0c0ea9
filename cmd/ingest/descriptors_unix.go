//go:build unix

package main

import (
	"fmt"
	"syscall"
)

// reserve is how many descriptors a replica needs beside device sockets: for Redis' pools, HTTP, listeners.
const reserve = 256

// affordable is how many device sockets the descriptor limit allows. Without it a flood of devices takes the
// descriptors that Redis is dialled with, and a replica that has lost Redis once never finds it again.
func affordable(want int) int {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil || uint64(l.Cur) >= uint64(want)+reserve {
		return want
	}
	return max(1, int(l.Cur)-min(reserve, int(l.Cur)/2))
}

// beside is how many descriptors a simulation needs beside its sockets.
const beside = 32

// descriptorsFor raises the limit of open files so that so many sockets fit, or says why it cannot.
func descriptorsFor(sockets int) error {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return nil // nobody knows: the sockets that cannot be opened will say so
	}
	want := uint64(sockets) + beside
	if uint64(l.Cur) >= want {
		return nil
	}
	hard := uint64(l.Max)
	if hard >= want {
		l.Cur = l.Max
		if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l) == nil {
			return nil
		}
	}
	return fmt.Errorf("%d open files are needed and %d allowed: raise the limit (ulimit -Hn %d), or take fewer --devices or no --half-open", want, hard, want)
}
