package registry_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{})
	redistest.Main(m)
}

// quiet keeps go-redis from logging each failed dial.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}
