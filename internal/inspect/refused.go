package inspect

import (
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// wrongType tells whether the server answered that a key is of another type. What it would have
// said is not known; one key of somebody else must not hide all the rest.
func wrongType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }

// Refused tells whether the server answered that this may not be done, or that it does not know
// how.
func Refused(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) &&
		(strings.HasPrefix(answer.Error(), "NOPERM") || strings.HasPrefix(answer.Error(), "ERR unknown"))
}
