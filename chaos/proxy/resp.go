package proxy

import (
	"bufio"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
)

var errNotRESP = errors.New("no RESP")

// value is a request or a reply in RESP 2 or 3.
type value struct {
	raw   []byte   // as sent
	kind  byte     // its first byte, behind an attribute
	words [][2]int // the scalars, at any depth, as parts of raw; one past its end is a null
}

// word returns the n-th scalar, "nil" for a null, "" if there are fewer.
func (v *value) word(n int) string {
	switch {
	case n >= len(v.words):
		return ""
	case v.words[n][0] > len(v.raw):
		return "nil"
	}
	return string(v.raw[v.words[n][0]:v.words[n][1]])
}

func (v *value) request() Request {
	r := make(Request, len(v.words))
	for i := range r {
		r[i] = v.word(i)
	}
	if len(r) > 0 {
		r[0] = strings.ToUpper(r[0])
	}
	return r
}

var null = [2]int{1 << 62, 1 << 62}

// On errNotRESP raw has the bytes read.
func (v *value) read(r *bufio.Reader) error {
	v.raw, v.words = v.raw[:0], v.words[:0]
	return v.more(r, true)
}

func (v *value) more(r *bufio.Reader, outermost bool) error {
	line, err := r.ReadSlice('\n')
	begun := len(v.raw) + 1
	v.raw = append(v.raw, line...)
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return errNotRESP
	case err != nil:
		return err
	case len(line) < 3 || line[len(line)-2] != '\r':
		return errNotRESP
	}
	kind := line[0]
	if outermost {
		v.kind = kind
	}
	switch kind {
	case '+', '-', ':', ',', '#', '(':
		v.words = append(v.words, [2]int{begun, len(v.raw) - 2})
		return nil
	case '_':
		v.words = append(v.words, null)
		return nil
	}
	n, err := strconv.Atoi(string(line[1 : len(line)-2]))
	switch {
	case err != nil || n < -1 || !strings.ContainsRune("$=!*~>%|", rune(kind)):
		return errNotRESP
	case n == -1:
		v.words = append(v.words, null)
		return nil
	case strings.ContainsRune("$=!", rune(kind)):
		begun = len(v.raw)
		v.raw = slices.Grow(v.raw, n+2)[:begun+n+2]
		v.words = append(v.words, [2]int{begun, begun + n})
		_, err = io.ReadFull(r, v.raw[begun:])
		return err
	case kind == '%', kind == '|':
		n *= 2
	}
	before := len(v.words)
	for ; n > 0 && err == nil; n-- {
		err = v.more(r, false)
	}
	if kind == '|' && err == nil {
		v.words = v.words[:before]
		return v.more(r, outermost) // the value it belongs to
	}
	return err
}

// Request is a command as sent, its name in capitals.
type Request []string

// Has looks for a word, in any case.
func (r Request) Has(word string) bool {
	return slices.ContainsFunc(r, func(w string) bool { return strings.EqualFold(w, word) })
}

// Script splits a script's call into keys and arguments.
func (r Request) Script() (keys, args []string) {
	if len(r) < 3 || !strings.HasPrefix(r[0], "EVAL") { // _RO too
		return nil, nil
	}
	n, err := strconv.Atoi(r[2])
	if err != nil || n < 0 || 3+n > len(r) {
		return nil, nil
	}
	return r[3 : 3+n], r[3+n:]
}

// On reports whether a script's keys begin with these.
func (r Request) On(keys ...string) bool {
	got, _ := r.Script()
	return len(got) >= len(keys) && slices.Equal(got[:len(keys)], keys)
}
