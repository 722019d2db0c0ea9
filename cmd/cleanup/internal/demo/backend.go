package demo

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// backend is a game backend in Redis and MongoDB.
type backend struct {
	rdb redis.UniversalClient
	db  *mongo.Database

	rooms    map[string]*redis.PubSub // living ones; each holds its channel
	unlisted []string                 // living rooms missing from the listing
	living   map[string]bool          // must stay
	orphans  map[string]bool          // must be removed
}

func newBackend(rdb redis.UniversalClient, db *mongo.Database) *backend {
	return &backend{
		rdb: rdb, db: db, rooms: map[string]*redis.PubSub{}, living: map[string]bool{}, orphans: map[string]bool{},
	}
}

const (
	listing = "roomcaches"
	queue   = "queue:elo"
)

// member has the form of a key.
func member(key, name string) string { return key + " " + name }

// room reserves seats, which it leaves behind if it dies.
func (b *backend) room(ctx context.Context, id string, seats int, dies bool) error {
	channel := b.rdb.Subscribe(ctx, "$"+id)
	if _, err := channel.Receive(ctx); err != nil {
		return fmt.Errorf("cleanupdemo: subscribe: %w", err)
	}
	b.rooms[id] = channel
	for i := range seats {
		key := fmt.Sprintf("queue:reservation:%s-%d", id, i+1)
		if err := b.rdb.Set(ctx, key, `{"roomId":"`+id+`"}`, time.Hour).Err(); err != nil {
			return err
		}
		b.mark(dies, key)
	}
	b.living[listing] = true
	return b.rdb.HSet(ctx, listing, id, `{"roomId":"`+id+`"}`).Err()
}

func (b *backend) mark(dies bool, keys ...string) {
	for _, key := range keys {
		if dies {
			b.orphans[key] = true
		} else {
			b.living[key] = true
		}
	}
}

// kill is the death of a room's process: its channel closes, and another process removes it from
// the listing.
func (b *backend) kill(ctx context.Context, id string) error {
	if err := b.rooms[id].Close(); err != nil {
		return err
	}
	delete(b.rooms, id)
	return b.rdb.HDel(ctx, listing, id).Err()
}

// list rewrites the listing, as saving rooms do.
func (b *backend) list(ctx context.Context) error {
	for id := range b.rooms {
		if slices.Contains(b.unlisted, id) {
			continue
		}
		if err := b.rdb.HSet(ctx, listing, id, `{"roomId":"`+id+`"}`).Err(); err != nil {
			return err
		}
	}
	return nil
}

// waits puts a user in the queue, scored by rating.
func (b *backend) waits(ctx context.Context, user string, rating float64, since time.Time, left bool) error {
	joined := "queue:joinedAt:" + user
	b.mark(left, member(queue, user), joined)
	b.living[queue] = true
	if err := b.rdb.ZAdd(ctx, queue, redis.Z{Score: rating, Member: user}).Err(); err != nil {
		return err
	}
	return b.rdb.Set(ctx, joined, since.UnixMilli(), 0).Err()
}

// match writes no document if the status is empty.
func (b *backend) match(ctx context.Context, status string, ended time.Time, over bool) error {
	id := bson.NewObjectID()
	if status != "" {
		doc := bson.D{{Key: "_id", Value: id}, {Key: "status", Value: status}}
		if !ended.IsZero() {
			doc = append(doc, bson.E{Key: "endedAt", Value: ended})
		}
		if _, err := b.db.Collection("matches").InsertOne(ctx, doc); err != nil {
			return fmt.Errorf("cleanupdemo: MongoDB: %w", err)
		}
	}
	name := "match:" + id.Hex()
	for _, key := range []string{name, name + ":ratings", name + ":user:ann"} {
		if err := b.rdb.Set(ctx, key, `{"status":"running"}`, 0).Err(); err != nil {
			return err
		}
		b.mark(over, key)
	}
	return nil
}

// bot is deployed unless it crashed.
func (b *backend) bot(ctx context.Context, id string, crashed bool) error {
	key := "bots:state:" + id
	b.mark(crashed, key)
	if !crashed {
		b.living["bots:deployed"] = true
		if err := b.rdb.SAdd(ctx, "bots:deployed", id).Err(); err != nil {
			return err
		}
	}
	return b.rdb.Set(ctx, key, "playing", 0).Err()
}

func (b *backend) there(ctx context.Context) (map[string]bool, error) {
	all := map[string]bool{}
	keys, err := b.rdb.Keys(ctx, "*").Result() // this Redis is the demo's own
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		if !strings.HasPrefix(key, prefix) {
			all[key] = true
		}
	}
	users, err := b.rdb.ZRange(ctx, queue, 0, -1).Result()
	for _, user := range users {
		all[member(queue, user)] = true
	}
	return all, err
}

func (b *backend) open(ctx context.Context) error {
	now := time.Now()
	steps := []func() error{
		func() error { return b.room(ctx, "lobby", 4, false) },
		func() error { return b.room(ctx, "arena", 6, false) },
		// This room lives, but is about to be removed from the listing.
		func() error { return b.room(ctx, "quiet", 3, false) },
		func() error { return b.room(ctx, "doomed", 8, true) },
		func() error { return b.waits(ctx, "lobby-1", 1510, now.Add(-time.Hour), false) }, // has a seat
	}
	for i, rating := range []float64{900, 1500, float64(now.UnixMilli())} {
		nr := strconv.Itoa(i + 1)
		steps = append(steps,
			func() error { return b.waits(ctx, "left-"+nr, rating, now.Add(-time.Hour), true) },
			func() error { return b.waits(ctx, "waits-"+nr, rating, now, false) })
	}
	for i := range 5 {
		steps = append(steps, func() error { return b.bot(ctx, "b"+strconv.Itoa(i+1), false) })
	}
	long := now.Add(-2 * time.Hour)
	steps = append(steps,
		func() error { return b.bot(ctx, "crashed-1", true) },
		func() error { return b.bot(ctx, "crashed-2", true) },
		func() error { return b.match(ctx, "ongoing", time.Time{}, false) },
		func() error { return b.match(ctx, "finished", now, false) }, // just now: its result is still shown
		func() error { return b.match(ctx, "", time.Time{}, false) }, // unknown to MongoDB
		func() error { return b.match(ctx, "finished", long, true) },
		func() error { return b.match(ctx, "abandoned", long, true) },
	)
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (b *backend) close() {
	for _, channel := range b.rooms {
		_ = channel.Close() // the connection may be gone with its server
	}
}
