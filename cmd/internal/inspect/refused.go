package inspect

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
)

// wrongType: such a key must not hide all the others.
func wrongType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }

// Refused reports whether the server does not allow a command, or does not know it.
func Refused(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) &&
		(strings.HasPrefix(answer.Error(), "NOPERM") || strings.HasPrefix(answer.Error(), "ERR unknown"))
}

var otherReply = regexp.MustCompile(`redis: (?:can't parse (?:.* reply: |reply=)?|invalid reply: )(".*")`)

// NoRedis quotes the reply of a server that is not a Redis; "" for any other error.
func NoRedis(err error) string {
	if m := otherReply.FindStringSubmatch(fmt.Sprint(err)); m != nil {
		return m[1]
	}
	return ""
}
