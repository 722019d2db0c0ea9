package service

import (
	"strconv"
	"strings"
)

// Printable makes text safe for a terminal, since it comes from a device, or from anybody who can
// write to Redis. Control characters (line breaks too), marks that change the direction of text and
// bytes that are no UTF-8 are escaped as in a Go literal. A backslash is not escaped, so the
// original cannot always be told; it is in Redis.
func Printable(s string) string {
	quoted := strconv.Quote(s)
	return strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(quoted[1 : len(quoted)-1])
}
