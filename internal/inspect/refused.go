package inspect

import (
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Refused tells whether the server answered that this may not be done, or that it does not know
// how.
func Refused(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) &&
		(strings.HasPrefix(err.Error(), "NOPERM") || strings.HasPrefix(err.Error(), "ERR unknown"))
}
