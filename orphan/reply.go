package orphan

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
)

// An observation is a read command and its answer. The deleting script repeats the command, and
// requires the same answer.
type observation struct {
	args   []string
	answer string // in replyText's and same.lua's format
	cost   int    // of repeating it (µs), estimated
}

// keys that the command reads.
func (o observation) keys() []string {
	if o.args[0] == "PUBSUB" {
		return nil
	}
	return o.args[1:2]
}

const (
	askCost  = 3   // µs for a repeated command
	hashRate = 200 // bytes of an answer per µs
)

const shown = 40

// replyText formats an answer in the same way as same.lua:
//
//	_         nil
//	:7        an integer
//	=1.5      a number: a score, which is compared as a number
//	$text     a text of at most 40 bytes
//	#abcd     the SHA-1 of a longer one, or of one that is not UTF-8
//	*a|b      an array, perhaps of arrays; the SHA-1 of a text in it
//
// An error from Redis is an answer too, and equals no other.
func replyText(cmd *redis.Cmd) string {
	value, err := cmd.Result()
	if errors.Is(err, redis.Nil) {
		return "_"
	}
	if err != nil {
		return "-" + err.Error()
	}
	if s, ok := value.(string); ok && strings.EqualFold(cmd.Name(), "zscore") {
		return "=" + s
	}
	return valueText(value)
}

func valueText(value any) string {
	switch v := value.(type) {
	case nil:
		return "_"
	case int64:
		return ":" + strconv.FormatInt(v, 10)
	case string:
		if len(v) <= shown && utf8.ValidString(v) {
			return "$" + v
		}
		return "#" + digest(v)
	case float64:
		return "=" + strconv.FormatFloat(v, 'g', -1, 64)
	case []any:
		parts := make([]string, len(v))
		for i, each := range v {
			parts[i] = valueText(each)
			if text, ok := each.(string); ok {
				parts[i] = "#" + digest(text)
			}
		}
		return "*" + strings.Join(parts, "|")
	}
	return fmt.Sprintf("?%T", value)
}

func digest(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

func bytesOf(cmd *redis.Cmd) int {
	var of func(value any) int
	of = func(value any) (n int) {
		switch v := value.(type) {
		case string:
			return len(v)
		case []any:
			for _, each := range v {
				n += 16 + of(each)
			}
		}
		return n
	}
	return of(cmd.Val())
}
