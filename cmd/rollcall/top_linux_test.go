package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/internal/process"
)

// terminal opens a pseudo-terminal: what a program writes to the one is read from the other.
func terminal(t *testing.T) (program, person *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	var locked, n int32
	ioctl(t, person, syscall.TIOCSPTLCK, unsafe.Pointer(&locked))
	ioctl(t, person, syscall.TIOCGPTN, unsafe.Pointer(&n))
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	return program, person
}

func ioctl(t *testing.T, of *os.File, request uintptr, to unsafe.Pointer) {
	t.Helper()
	_, _, fault := syscall.Syscall(syscall.SYS_IOCTL, of.Fd(), request, uintptr(to))
	require.Zero(t, fault, fault.Error())
}

func resize(t *testing.T, of *os.File, width, height uint16) {
	t.Helper()
	ioctl(t, of, syscall.TIOCSWINSZ, unsafe.Pointer(&[4]uint16{height, width}))
}

func TestTopOnATerminalFollowsItsSizeAndEndsWithStatusZero(t *testing.T) {
	t.Parallel()
	w := serverOf(t, sharedOptions(t))
	program, person := terminal(t)
	resize(t, person, 60, 6)
	var out process.Buffer
	var read sync.WaitGroup
	read.Go(func() { _, _ = io.Copy(&out, person) }) // ends with an error when the program's end is closed

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	var complaints bytes.Buffer
	go func() {
		ended <- rollcall().Execute(ctx, []string{"top"}, w.environ, program, &complaints)
	}()
	pages := func() []string { return strings.Split(out.String(), home)[1:] }
	until(t, "a page is drawn", func() bool { return len(pages()) > 0 && strings.Contains(pages()[0], rest) })
	require.Equal(t, 5, strings.Count(pages()[0], "\r\n"), "%q", pages()[0])
	resize(t, person, 200, 30)
	until(t, "the new size is used", func() bool {
		all := pages()
		return strings.Contains(all[len(all)-1], "INSTANCE")
	})
	stop()
	require.Equal(t, cli.ExitOK, <-ended, complaints.String())
	until(t, "the terminal is as it was", func() bool { return strings.HasSuffix(out.String(), leave) })
	require.NoError(t, program.Close())
	read.Wait()
	require.NoError(t, person.Close())
}
