package keyless

import (
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Tag returns what the names of channels begin with. Pub/Sub knows no databases: without it, fleets
// in two databases would hear each other. It is "" in database 0, and "db2:" in database 2.
func Tag(client redis.UniversalClient) string {
	if c, ok := client.(*redis.Client); ok && c.Options().DB > 0 {
		return fmt.Sprintf("db%d:", c.Options().DB)
	}
	return ""
}

// Channel returns the channel of this name in the client's database.
func Channel(client redis.UniversalClient, name string) string { return Tag(client) + name }
