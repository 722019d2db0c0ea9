package lease

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed epoch.lua
var epochLua string

var epochScript = redis.NewScript(epochLua)

// maxEpoch is the first number that the script refuses to draw. A stored number beyond it is
// damage, and is not remembered.
const maxEpoch = 1 << 53

// draw draws an epoch higher than all that this elector has met and than above. It returns
// errNotMine if the lease does not hold the token. After any other error an epoch may have been
// drawn or not, which does not matter: nobody will use that number.
func (e *Elector) draw(
	ctx context.Context, within time.Duration, token string, above uint64,
) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	above = max(above, e.met(0))
	epoch, err := epochScript.Run(ctx, e.client, []string{e.key, e.epochKey}, token, above).Uint64()
	if errors.Is(err, redis.Nil) {
		return 0, errNotMine
	}
	if err != nil {
		return 0, fmt.Errorf("lease: draw epoch: %w", err)
	}
	e.met(epoch)
	return epoch, nil
}

// met remembers and returns the highest epoch, so that one that Redis lost is not drawn again.
func (e *Elector) met(epoch uint64) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if epoch < maxEpoch {
		e.highest = max(e.highest, epoch)
	}
	return e.highest
}
