package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rollcall-redis/rollcall/orphan"
	"github.com/rollcall-redis/rollcall/orphan/mongodb"
)

// source is MongoDB, and remembers whether the last call succeeded, for the status.
type source struct {
	db *mongodb.Source

	mu     sync.Mutex
	last   time.Time // when it last answered; zero: never
	failed error     // the last call's error
}

// mongoStatus is MongoDB's part of the status.
type mongoStatus struct {
	// Asked: some rules ask it.
	Asked bool `json:"asked"`
	// LastAnswer is when it last answered this process; only a leader asks.
	LastAnswer time.Time `json:"last_answer,omitzero"`
	// Error is why the last call failed.
	Error string `json:"error,omitempty"`
}

// openSource connects if a rule asks MongoDB, and otherwise returns nil. It does not wait for the
// server.
func openSource(s *settings) (*source, error) {
	if len(asksMongoDB(s.rules)) == 0 {
		return nil, nil
	}
	db, err := mongodb.Connect(string(s.mongodbURI))
	if err != nil {
		return nil, err
	}
	return &source{db: db}, nil
}

// orNil avoids a nil pointer in the interface, which package orphan would take for a source.
func (s *source) orNil() orphan.Source {
	if s == nil {
		return nil
	}
	return s
}

func (s *source) Documents(ctx context.Context, q orphan.Query) (map[string]orphan.Document, error) {
	found, err := s.db.Documents(ctx, q)
	s.note(err)
	return found, err
}

func (s *source) Empty(ctx context.Context, collection string) (bool, error) {
	empty, err := s.db.Empty(ctx, collection)
	s.note(err)
	return empty, err
}

func (s *source) note(err error) {
	if errors.Is(err, context.Canceled) { // the caller went away
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed = err; err == nil {
		s.last = time.Now()
	}
}

func (s *source) status() mongoStatus {
	if s == nil {
		return mongoStatus{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := mongoStatus{Asked: true, LastAnswer: s.last}
	if s.failed != nil {
		st.Error = s.failed.Error()
	}
	return st
}

const closeBound = time.Second

func (s *source) close(ctx context.Context) error {
	if s == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeBound)
	defer cancel()
	return s.db.Close(ctx)
}
