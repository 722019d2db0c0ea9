package mongodb_test

import (
	"testing"

	"github.com/rollcall-redis/rollcall/orphan/mongodb/mongotest"
)

func TestMain(m *testing.M) { mongotest.Main(m) }
