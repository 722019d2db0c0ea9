// Package printable makes text safe to show on a terminal, in JSON, on the page and in the log: it
// comes from a device, or from anybody who can write to Redis.
//
// Unprintable characters become escapes: control characters (C0 and C1), marks that change the
// direction of text, and all else that has no glyph, such as what joins letters without a trace.
// Spaces are printable.
package printable

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text returns one line for a terminal. Line breaks and bytes that are not UTF-8 are escaped too,
// as in a Go literal, but not a backslash, so the original cannot always be recovered.
func Text(s string) string {
	quoted := strconv.Quote(s)
	return strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(quoted[1 : len(quoted)-1])
}

// Most is how many characters of an id or another's word are shown.
const Most = 64

// mostText bounds a sentence, and a log line's fault.
const mostText = 2048

// Clip bounds an id or another's word.
func Clip(s string) string { return clip(s, Most) }

// Sentence bounds a text that may repeat what others wrote.
func Sentence(s string) string { return clip(s, mostText) }

func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + fmt.Sprintf("… (%d bytes)", len(s))
}

// ours are the attributes of a log line that no id of others is in.
var ours = map[string]bool{
	slog.TimeKey: true, slog.LevelKey: true, slog.MessageKey: true,
	"error": true, "bytes": true, "why": true, "reason": true, "file": true, "addr": true, "unseen": true,
}

// Attr bounds what a log line repeats of others, for [slog.HandlerOptions].
func Attr(groups []string, a slog.Attr) slog.Attr {
	bound := Clip
	if ours[a.Key] || len(groups) > 0 { // a group has settings
		bound = Sentence
	}
	switch v := a.Value.Any().(type) {
	case string:
		a.Value = slog.StringValue(bound(v))
	case error:
		a.Value = slog.StringValue(Sentence(v.Error()))
	case []string:
		short := make([]string, min(len(v), Most))
		for i := range short {
			short[i] = bound(v[i])
		}
		a.Value = slog.AnyValue(short)
	}
	return a
}

// JSON returns JSON of the same meaning.
func JSON(text []byte) []byte {
	return escape(text, func(to []byte, r rune) []byte {
		if high, low := utf16.EncodeRune(r); high != unicode.ReplacementChar {
			return fmt.Appendf(to, `\u%04x\u%04x`, high, low)
		}
		return fmt.Appendf(to, `\u%04x`, r)
	})
}

// HTML shows unprintable characters as numbers.
func HTML(text []byte) []byte {
	return escape(text, func(to []byte, r rune) []byte { return fmt.Appendf(to, `\u{%x}`, r) })
}

// Writer escapes as JSON does. Each Write must hold whole characters.
func Writer(w io.Writer) io.Writer { return writer{w} }

type writer struct{ to io.Writer }

func (w writer) Write(p []byte) (int, error) {
	if _, err := w.to.Write(JSON(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// escape leaves line breaks and tabs, which are the form of the text. Mostly there is nothing to
// escape.
func escape(text []byte, write func(to []byte, r rune) []byte) []byte {
	at := bytes.IndexFunc(text, hidden)
	if at < 0 {
		return text
	}
	to := append(make([]byte, 0, len(text)+64), text[:at]...)
	for at < len(text) {
		r, size := utf8.DecodeRune(text[at:])
		if hidden(r) {
			to = write(to, r)
		} else {
			to = append(to, text[at:at+size]...)
		}
		at += size
	}
	return to
}

// hidden: bytes that are not UTF-8 are U+FFFD.
func hidden(r rune) bool {
	return r == utf8.RuneError || !unicode.IsGraphic(r) && r != '\n' && r != '\t' && r != '\r'
}
