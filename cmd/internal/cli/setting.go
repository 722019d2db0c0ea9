package cli

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/internal/guard"
)

// Setting is a row of a command's table.
type Setting struct {
	// Name is the variable's; in lower case it is a flag alone.
	Name string
	// Default is in the syntax of a value. If it is empty nothing is stored.
	Default string
	// Meaning is for -h and the page, Consequence for the page alone. Both are Markdown.
	Meaning, Consequence string
	// Required settings have no default.
	Required bool
	// Secret values appear in no fault and no log.
	Secret bool
	// Bare values are the secret itself, and not a URL that may contain one.
	Bare bool
	// Switch means that the flag alone is true.
	Switch bool
	// Value parses and stores a text. Its error states the expected form, and repeats nothing.
	Value func(text string) error
	// Shown, if not nil, is its value in logs.
	Shown func() string
	// Check, if not nil, adds faults in combination, after all settings were stored.
	Check func(in *Input)
}

// Off is an address where nobody listens.
const Off = "off"

func (s Setting) isFlagAlone() bool { return s.Name == strings.ToLower(s.Name) }

// Flag returns the flag without dashes.
func (s Setting) Flag() string { return strings.ReplaceAll(strings.ToLower(s.Name), "_", "-") }

func flags(rows []Setting) (names []string) {
	for _, s := range rows {
		names = append(names, s.Flag())
	}
	return names
}

func (s Setting) defaultText() string {
	switch {
	case s.Required:
		return "none, required"
	case s.Default == "":
		return "empty"
	}
	return s.Default
}

// Text accepts any text that passes the checks.
func Text(p *string, checks ...func(string) error) func(string) error {
	return func(v string) error {
		*p = v
		for _, check := range checks {
			if err := check(v); err != nil {
				return err
			}
		}
		return nil
	}
}

// Prefix accepts a prefix of keys, with one hash tag at most.
func Prefix(p *string) func(string) error {
	return Text(p, func(v string) error {
		if !(guard.Layout{Prefix: v}).ValidPrefix() {
			return errors.New("a text of " + guard.PrefixRule)
		}
		return nil
	})
}

// File is the row of a file that is reread when it changes. read checks the contents; its error
// must repeat neither them nor the path: somebody may put the secret itself in the path's place.
func File(p *string, name string, read func(path string) error) Setting {
	return Setting{
		Name: name, Secret: true,
		Value: func(v string) error {
			*p = v
			if err := read(v); err != nil {
				return fmt.Errorf("the path of a file that can be used (%w)", err)
			}
			return nil
		},
		Shown: func() string { return *p },
	}
}

// NotBoth adds a fault if both were given.
func (in *Input) NotBoth(one, other string) {
	if in.Given(one, other) {
		in.Fault("%s and %s: expected one of the two, got both", one, other)
	}
}

// Number accepts a whole number; least must not be negative.
func Number[T int | int64 | uint64](p *T, least, most T) func(string) error {
	return func(v string) error {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil || n < uint64(least) || n > uint64(most) {
			return fmt.Errorf("a whole number from %d to %d", least, most)
		}
		*p = T(n)
		return nil
	}
}

// Share accepts a number from least to 1.
func Share(p *float64, least float64) func(string) error {
	return func(v string) error {
		f, err := strconv.ParseFloat(v, 64)
		if err != nil || !(f >= least && f <= 1) { // NaN fails
			return fmt.Errorf("a number from %v to 1", least)
		}
		*p = f
		return nil
	}
}

// Duration accepts a duration with its unit.
func Duration(p *time.Duration, least, most time.Duration) func(string) error {
	return func(v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d < least || d > most {
			return fmt.Errorf("a duration with its unit, such as 30s or 1m30s, from %v to %v", least, most)
		}
		*p = d
		return nil
	}
}

// Milliseconds accepts a duration as a whole number of milliseconds.
func Milliseconds(p *time.Duration, least, most time.Duration) func(string) error {
	return func(v string) error {
		var ms int64
		if err := Number(&ms, least.Milliseconds(), most.Milliseconds())(v); err != nil {
			return fmt.Errorf("a whole number of milliseconds from %d to %d",
				least.Milliseconds(), most.Milliseconds())
		}
		*p = time.Duration(ms) * time.Millisecond
		return nil
	}
}

// Bool accepts true or false.
func Bool(p *bool) func(string) error {
	return func(v string) (err error) {
		if *p, err = strconv.ParseBool(v); err != nil {
			return errors.New("true or false")
		}
		return nil
	}
}

// OneOf accepts one of at least two words.
func OneOf(p *string, words ...string) func(string) error {
	last := len(words) - 1
	return Text(p, func(v string) error {
		if !slices.Contains(words, v) {
			return errors.New(strings.Join(words[:last], ", ") + " or " + words[last])
		}
		return nil
	})
}

// Address accepts host:port.
func Address(p *string) func(string) error { return Text(p, CheckAddress) }

// AddressOrOff accepts host:port or [Off].
func AddressOrOff(p *string) func(string) error {
	return Text(p, func(v string) error {
		if err := CheckAddress(v); err != nil && v != Off {
			return fmt.Errorf("%w, or off", err)
		}
		return nil
	})
}

// CheckAddress accepts host:port and :port.
func CheckAddress(v string) error {
	_, port, err := net.SplitHostPort(v)
	if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil {
		return errors.New("host:port, or :port for every interface")
	}
	return nil
}

// Seed returns the row of a seed, random unless given.
func Seed(p *uint64) Setting {
	return Setting{
		Name: "seed", Default: "drawn", Meaning: "number that decides what is drawn",
		Value: func(v string) (err error) {
			if v == "drawn" {
				*p = rand.Uint64()
			} else if *p, err = strconv.ParseUint(v, 10, 64); err != nil {
				return errors.New("a whole number")
			}
			return nil
		},
	}
}

// Secret may be logged: it prints only whether it is set.
type Secret string

// String hides the secret.
func (s Secret) String() string {
	if s == "" {
		return "(empty)"
	}
	return "(set)"
}

// GoString is for %#v.
func (s Secret) GoString() string { return s.String() }

// MarshalText is for JSON and other encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
