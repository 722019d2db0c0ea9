package inspect

import (
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// wrongType reports whether the server answered that a key is of another type. Such a key must not
// hide all the others.
func wrongType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }

// Refused reports whether the server answered that a command is not allowed, or unknown.
func Refused(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) &&
		(strings.HasPrefix(answer.Error(), "NOPERM") || strings.HasPrefix(answer.Error(), "ERR unknown"))
}
