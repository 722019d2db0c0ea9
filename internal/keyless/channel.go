package keyless

import (
	"fmt"

	"github.com/redis/go-redis/v9"
)

// TagOf returns what the names of channels begin with. Pub/Sub knows no databases: without it,
// fleets in two databases would hear each other. It is "" in database 0, and "db2:" in database 2.
func TagOf(db int) string {
	if db > 0 {
		return fmt.Sprintf("db%d:", db)
	}
	return ""
}

// Tag is TagOf the client's database.
func Tag(client redis.UniversalClient) string {
	if c, ok := client.(*redis.Client); ok {
		return TagOf(c.Options().DB)
	}
	return ""
}

// Channel returns the channel of this name in the client's database.
func Channel(client redis.UniversalClient, name string) string { return Tag(client) + name }
