// Package streak logs the first failure of a row, and the end of the row.
//
//	reads := streak.New(log, "cannot read commands; retrying", "reading commands again")
//	for {
//		err := read()
//		reads.Note(err)
//		...
//	}
//
// Do not note an error that only means that the caller is stopping.
package streak

import (
	"log/slog"
	"sync/atomic"
)

// Streak is safe for concurrent use.
type Streak struct {
	log          *slog.Logger
	fails, works string
	failing      atomic.Bool
}

// New takes the operation for working. fails is logged at WARN, with the error, works at INFO.
func New(log *slog.Logger, fails, works string, attrs ...any) *Streak {
	return &Streak{log: log.With(attrs...), fails: fails, works: works}
}

// Note takes a try's result. Further failures of a row are logged at DEBUG.
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

// Begun starts a row of failures whose first the caller has logged.
func (s *Streak) Begun() { s.failing.Store(true) }

// Failing reports whether the last try failed.
func (s *Streak) Failing() bool { return s.failing.Load() }
