package mongodb_test

import (
	"testing"

	"github.com/rollcall-redis/rollcall/internal/testservers/mongotest"
)

func TestMain(m *testing.M) { mongotest.Main(m) }
