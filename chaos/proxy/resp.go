package proxy

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
)

// maxText is how much of a reply's first text is kept.
const maxText = 64

var errNotRESP = errors.New("no RESP")

// scanner finds where values of RESP (2 and 3) end, in bytes that come in any pieces, and keeps
// what tells a reply: its type, and the first text in it.
type scanner struct {
	kind byte   // the value's first byte; an attribute before it is none
	text []byte // of the first scalar in it, "nil" for a null
	err  error  // it is not RESP: nothing can be said of what follows

	within  bool        // a value has begun
	open    []aggregate // that are not complete, outermost first
	line    []byte      // of a header that came in pieces
	body    int         // bytes of a bulk string still to come, with its line's end
	told    bool        // text is settled
	telling bool        // the body is the text
}

type aggregate struct {
	left int  // values to come
	attr bool // it is not itself a value
}

// next takes bytes up to the end of a value, at most; done: there it is.
func (s *scanner) next(p []byte) (n int, done bool) {
	if !s.within {
		s.within, s.kind, s.text, s.told = true, 0, s.text[:0], false
	}
	for n < len(p) && s.err == nil && !done {
		if s.body > 0 {
			k := min(s.body, len(p)-n)
			if s.telling {
				s.text = append(s.text, p[n:n+max(0, min(k, s.body-2, maxText-len(s.text)))]...)
			}
			n += k
			if s.body -= k; s.body == 0 {
				s.telling = false
				done = s.ended()
			}
			continue
		}
		i := bytes.IndexByte(p[n:], '\n')
		if i < 0 {
			s.line = append(s.line, p[n:]...)
			return len(p), false
		}
		head := p[n : n+i+1]
		if len(s.line) > 0 {
			s.line = append(s.line, head...)
			head = s.line
		}
		n += i + 1
		done = s.header(head)
		s.line = s.line[:0]
	}
	return n, done
}

// header takes the line that every value begins with; true: the outermost value ends with it.
func (s *scanner) header(line []byte) bool {
	if len(line) < 3 || line[len(line)-2] != '\r' {
		s.err = errNotRESP
		return false
	}
	kind, line := line[0], line[1:len(line)-2]
	if len(s.open) == 0 && kind != '|' {
		s.kind = kind
	}
	switch kind {
	case '+', '-', ':', ',', '#', '(':
		s.tell(line)
		return s.ended()
	case '_':
		s.tell([]byte("nil"))
		return s.ended()
	}
	n, err := strconv.Atoi(string(line))
	switch {
	case err != nil || n < -1:
		s.err = errNotRESP
		return false
	case n == -1:
		s.tell([]byte("nil"))
		return s.ended()
	}
	switch kind {
	case '$', '=', '!':
		s.body = n + 2
		s.telling = s.tell(nil)
		return false
	case '*', '~', '>':
	case '%', '|':
		n *= 2
	default:
		s.err = errNotRESP
		return false
	}
	if n > 0 {
		s.open = append(s.open, aggregate{left: n, attr: kind == '|'})
		return false
	}
	return kind != '|' && s.ended()
}

// tell settles the text, if what comes now is the first scalar.
func (s *scanner) tell(text []byte) bool {
	if s.told {
		return false
	}
	for _, a := range s.open {
		if a.attr {
			return false
		}
	}
	s.told = true
	s.text = append(s.text, text[:min(len(text), maxText)]...)
	return true
}

// ended notes that a value ended, and with it perhaps those that it is in; true: the outermost one.
func (s *scanner) ended() bool {
	for len(s.open) > 0 {
		top := &s.open[len(s.open)-1]
		if top.left--; top.left > 0 {
			return false
		}
		attr := top.attr
		s.open = s.open[:len(s.open)-1]
		if attr {
			return false // what it belongs to is to come
		}
	}
	s.within = false
	return true
}

// Request is a command as it was sent, its name in capitals. Matchers get the first words of long
// ones only.
type Request []string

// wordsToMatch is enough for the keys and the arguments proper of every script of ours.
const wordsToMatch = 24

// eachWord calls f with the words of one request until it says false. It reports whether the bytes
// are a request.
func eachWord(frame []byte, f func(word []byte) bool) bool {
	count, rest, ok := respNumber(frame, '*')
	for ; ok && count > 0; count-- {
		var n int
		if n, rest, ok = respNumber(rest, '$'); !ok || n < 0 || n+2 > len(rest) {
			return false
		}
		if !f(rest[:n]) {
			return true
		}
		rest = rest[n+2:]
	}
	return ok
}

// respNumber reads a header: its kind and a number.
func respNumber(p []byte, kind byte) (n int, rest []byte, ok bool) {
	i := bytes.IndexByte(p, '\r')
	if i < 2 || i+2 > len(p) || p[0] != kind {
		return 0, nil, false
	}
	n, err := strconv.Atoi(string(p[1:i]))
	return n, p[i+2:], err == nil
}

// words makes a request of its bytes; limit 0: all of it.
func bulks(frame []byte, limit int) Request {
	var r Request
	eachWord(frame, func(word []byte) bool {
		if len(r) == 0 {
			word = bytes.ToUpper(word)
		}
		r = append(r, string(word))
		return len(r) != limit
	})
	return r
}

// Script splits a call of a script into its keys and arguments, as far as the request goes.
func (r Request) Script() (keys, args []string) {
	if len(r) < 3 || r[0] != "EVALSHA" && r[0] != "EVAL" {
		return nil, nil
	}
	n, err := strconv.Atoi(r[2])
	if err != nil || n < 0 || 3+n > len(r) {
		return nil, nil
	}
	return r[3 : 3+n], r[3+n:]
}

// On tells whether it is a call of a script whose keys begin with these.
func (r Request) On(keys ...string) bool {
	got, _ := r.Script()
	return len(got) >= len(keys) && slices.Equal(got[:len(keys)], keys)
}
