package orphan

import (
	"testing"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
