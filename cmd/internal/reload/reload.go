// Package reload reads values kept in files where they are used, so that a password changes without
// a restart.
//
//	password, err := reload.Open("REDIS_PASSWORD_FILE", reload.Line, path)
//	login(user, password.Get())    // as the file has it
//
// It compares contents, not times or inodes, so a file may be replaced in any way: by renaming, by
// swapping a symbolic link above it as in a Kubernetes volume, or in place. For a missing, empty or
// malformed value, or one that does not prove itself ([File.Prove]), the former one is kept;
// [Files] logs that once, and has a metric.
//
// The files of one value are read one after the other, so a swap in between can combine parts that
// do not belong together: parse has to notice.
package reload

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

const most = 1 << 20

// A look is at most once in every, and a trial takes trialTime at most.
const (
	every     = time.Second
	trialTime = 3 * time.Second
)

// File is a value kept in files. It is safe for concurrent use.
type File[T any] struct {
	setting string
	paths   []string
	parse   func(texts []string) (T, error)
	prove   func(context.Context, T) error

	looking sync.Mutex
	looked  time.Time // by whoever has looking

	mu    sync.Mutex
	texts []string    // of value
	ends  []time.Time // of the certificates in texts
	value T
	since time.Time // accepted
	err   error     // of the last look
}

// Open reads a value. setting names it in errors, logs and metrics. parse must not repeat the
// files' contents in its error.
func Open[T any](setting string, parse func(texts []string) (T, error), paths ...string) (*File[T], error) {
	f := &File[T]{setting: setting, paths: paths, parse: parse}
	texts, value, err := f.read()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	f.accept(texts, value)
	f.looked = time.Now()
	return f, nil
}

// Prove makes every new value pass try before it is accepted, at each look until it does. Call it
// before Get.
func (f *File[T]) Prove(try func(context.Context, T) error) { f.prove = try }

// Get returns the value that the files had within the last second, or the last that was accepted.
// It may wait for a trial.
func (f *File[T]) Get() T {
	f.look()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.value
}

func (f *File[T]) look() {
	if !f.looking.TryLock() { // somebody does
		return
	}
	defer f.looking.Unlock()
	if time.Since(f.looked) < every {
		return
	}
	texts, value, err := f.read()
	changed := err == nil && !slices.Equal(texts, f.texts) // only look writes texts
	if changed && f.prove != nil {
		ctx, cancel := context.WithTimeout(context.Background(), trialTime)
		defer cancel()
		err = f.prove(ctx, value)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looked = time.Now()
	if f.err = err; changed && err == nil {
		f.accept(texts, value)
	}
}

func (f *File[T]) accept(texts []string, value T) {
	f.texts, f.value, f.since, f.ends = texts, value, time.Now(), nil
	for _, text := range texts {
		for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
			if cert, err := x509.ParseCertificate(block.Bytes); err == nil { // it may be a key
				f.ends = append(f.ends, cert.NotAfter)
			}
		}
	}
	slices.SortFunc(f.ends, time.Time.Compare)
}

func (f *File[T]) read() (texts []string, value T, err error) {
	for _, path := range f.paths {
		text, err := contents(path)
		if err != nil {
			return nil, value, err
		}
		texts = append(texts, text)
	}
	value, err = f.parse(texts)
	return texts, value, err
}

// Status returns the state as of a look within the last second.
func (f *File[T]) Status() Status {
	f.look()
	f.mu.Lock()
	defer f.mu.Unlock()
	s := Status{Setting: f.setting, Since: f.since}
	for _, ends := range f.ends {
		if s.Ends = ends; ends.After(time.Now()) {
			break
		}
	}
	if f.err != nil {
		s.Error = f.err.Error()
	}
	return s
}

// contents keeps the path out of its error: somebody may have put the password itself there.
func contents(path string) (string, error) {
	text, err := readFile(path)
	var at *os.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	if err != nil {
		return "", fmt.Errorf("the file cannot be read: %w", err)
	}
	if strings.TrimSpace(text) == "" {
		return "", errors.New("the file is empty")
	}
	if len(text) > most {
		return "", fmt.Errorf("the file has more than %d bytes", most)
	}
	return text, nil
}

func readFile(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, most+1))
	return string(text), err
}

// Line returns the only line of a File's only file, without the line break.
func Line(texts []string) (string, error) {
	line := strings.TrimRight(texts[0], "\r\n")
	if strings.ContainsAny(line, "\r\n\x00") {
		return "", errors.New("the file has more than one line")
	}
	return line, nil
}

// Read reads a value that nobody watches, to check settings.
func Read[T any](parse func(texts []string) (T, error), paths ...string) (T, error) {
	f := &File[T]{paths: paths, parse: parse}
	_, value, err := f.read()
	return value, err
}
