package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rollcall-redis/rollcall/orphan"
	"github.com/rollcall-redis/rollcall/orphan/mongodb"
)

// source remembers whether the last call succeeded, for the status.
type source struct {
	db *mongodb.Source

	mu     sync.Mutex
	last   time.Time // when it last answered
	failed error
}

type mongoStatus struct {
	Asked bool `json:"asked"`
	// LastAnswer is to this process; only a leader asks.
	LastAnswer time.Time `json:"last_answer,omitzero"`
	Error      string    `json:"error,omitempty"`
}

// openSource returns nil if no rule asks MongoDB. It does not wait for the server.
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
