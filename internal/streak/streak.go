// Package streak logs what fails again and again: the first failure of a row as a warning, and the
// end of the row.
//
//	reads := streak.New(log, "commands cannot be read, trying again", "commands are read again")
//	for {
//		err := read()
//		reads.Note(err)
//		...
//	}
//
// An error that only says that the caller stops is no failure: do not note it.
package streak

import (
	"log/slog"
	"sync/atomic"
)

// Streak is one thing that may fail for a while. It is safe for concurrent use.
type Streak struct {
	log          *slog.Logger
	fails, works string
	failing      atomic.Bool
}

// New returns a Streak of something that works. It logs fails at WARN, with the error, when the
// thing begins to fail, and works at INFO when it works again. Both lines have these attributes.
func New(log *slog.Logger, fails, works string, attrs ...any) *Streak {
	return &Streak{log: log.With(attrs...), fails: fails, works: works}
}

// Note says how the last try went. The failures of a row after its first one are logged at DEBUG.
func (s *Streak) Note(err error) {
	switch {
	case err != nil && s.failing.CompareAndSwap(false, true):
		s.log.Warn(s.fails, "error", err)
	case err != nil:
		s.log.Debug(s.fails, "error", err)
	case s.failing.CompareAndSwap(true, false):
		s.log.Info(s.works)
	}
}

// Begun says that it fails, and that a line of the caller has told so already.
func (s *Streak) Begun() { s.failing.Store(true) }

// Failing reports whether the last try failed.
func (s *Streak) Failing() bool { return s.failing.Load() }
