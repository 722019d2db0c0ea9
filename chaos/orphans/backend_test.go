package orphans

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Names of the backend's keys.
const (
	listing  = "roomcaches"
	queue    = "queue:elo"
	deployed = "bots:deployed"
	active   = "bots:active"
)

// A reservation is written for an hour, and old when two minutes of that are over. A fresh one
// stays so however slow the machine is.
const (
	fresh = 3 * time.Hour
	old   = 50 * time.Minute
)

// backend is a game backend of which only what it keeps in Redis and MongoDB is there. Its rooms
// hold their channels by connections of their own. Safe for concurrent use.
type backend struct {
	t   *testing.T
	rdb *redis.Client
	db  *mongo.Collection

	mu    sync.Mutex
	rand  *rand.Rand
	n     int                      // of names
	rooms map[string]*redis.PubSub // that live; nil: it has no channel
	quiet map[string]bool          // rooms that are delisted, and do not save
	bots  map[string]bool          // that run: which are active, not deployed
	seats map[string]string        // living reservations: user -> room
	waits map[string]bool          // users who wait
	docs  map[string]bson.D        // all documents, by id
	dead  map[string]func() bool   // what has to go: key or key and member -> whether it is there yet
}

func newBackend(t *testing.T, rdb *redis.Client, db *mongo.Collection, seed uint64) *backend {
	b := &backend{
		t: t, rdb: rdb, db: db, rand: rand.New(rand.NewPCG(seed, 12)),
		rooms: map[string]*redis.PubSub{}, quiet: map[string]bool{}, bots: map[string]bool{}, seats: map[string]string{},
		waits: map[string]bool{}, docs: map[string]bson.D{}, dead: map[string]func() bool{},
	}
	t.Cleanup(func() {
		for _, sub := range b.rooms {
			if sub != nil {
				_ = sub.Close()
			}
		}
	})
	return b
}

// patience bounds what a step waits for Redis, which may be away for a while.
const patience = 2 * time.Minute

// step is one transaction of the backend, which is repeated until it is answered. what says what
// begins to live by it, and what lives no longer.
func (b *backend) step(what string, do func(ctx context.Context, p redis.Pipeliner)) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		_, err := b.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, stepKey, what, 0)
			if do != nil {
				do(ctx, p)
			}
			return nil
		})
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			b.t.Errorf("the backend cannot write %q: %v", what, err)
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// name makes a name that was not there before.
func (b *backend) name(kind string) string {
	b.n++
	return fmt.Sprintf("%s%d", kind, b.n)
}

// open opens a room. One that is not listed is delisted, or in its onCreate.
func (b *backend) open(listed, channel bool) (id string) {
	id = b.name("room")
	b.step("+room:"+id, nil)
	b.rooms[id] = nil
	if channel {
		b.rooms[id] = b.subscribe("$" + id)
	}
	if b.quiet[id] = !listed; listed {
		b.step("", func(ctx context.Context, p redis.Pipeliner) { p.HSet(ctx, listing, id, `{"roomId":"`+id+`"}`) })
	}
	return id
}

// subscribe holds a channel, also when Redis comes back from a restart.
func (b *backend) subscribe(channel string) *redis.PubSub {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	sub := b.rdb.Subscribe(ctx, channel)
	for {
		_, err := sub.Receive(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			b.t.Errorf("the backend cannot subscribe: %v", err)
			break
		}
	}
	sub.Channel() // reads, and subscribes again
	return sub
}

// close ends a room. Its seats are left to whoever looks after them.
func (b *backend) close(id string) {
	b.step("-room:"+id, func(ctx context.Context, p redis.Pipeliner) { p.HDel(ctx, listing, id) })
	if sub := b.rooms[id]; sub != nil {
		_ = sub.Close()
	}
	delete(b.rooms, id)
	delete(b.quiet, id)
	for user, room := range b.seats {
		if room == id {
			delete(b.seats, user)
			b.orphan("queue:reservation:"+user, "")
		}
	}
}

// seat reserves a seat for a user.
func (b *backend) seat(user, room string, left time.Duration) {
	key := "queue:reservation:" + user
	b.alive(key)
	b.seats[user] = room
	b.step("", func(ctx context.Context, p redis.Pipeliner) { p.Set(ctx, key, `{"roomId":"`+room+`"}`, left) })
}

// wait puts a user into the queue.
func (b *backend) wait(user string) {
	b.alive(queue + " " + user)
	b.alive("queue:joinedAt:" + user)
	b.waits[user] = true
	b.step("+user:"+user, func(ctx context.Context, p redis.Pipeliner) { b.join(ctx, p, user, 0) })
}

func (b *backend) join(ctx context.Context, p redis.Pipeliner, user string, ago time.Duration) {
	p.ZAdd(ctx, queue, redis.Z{Score: float64(1000 + b.n), Member: user})
	p.Set(ctx, "queue:joinedAt:"+user, time.Now().Add(-ago).UnixMilli(), 0)
}

// stuck leaves a user in the queue who gave up an hour ago.
func (b *backend) stuck(user string) {
	delete(b.waits, user)
	b.step("-user:"+user, func(ctx context.Context, p redis.Pipeliner) { b.join(ctx, p, user, time.Hour) })
	b.orphan(queue, user)
}

// match begins a match, or leaves one that ended so long ago, and returns its key.
func (b *backend) match(status string, ago time.Duration) string {
	id := bson.NewObjectID()
	doc := bson.D{{Key: "_id", Value: id}, {Key: "status", Value: status}}
	what := "+match:" + id.Hex()
	if status == "finished" {
		doc = append(doc, bson.E{Key: "endedAt", Value: time.Now().Add(-ago)})
		if ago > time.Hour {
			what = ""
		}
	}
	name := "match:" + id.Hex()
	b.step(what, func(ctx context.Context, p redis.Pipeliner) {
		for _, key := range []string{name, name + ":ratings", name + ":user:ann"} {
			p.Set(ctx, key, "{}", 0)
		}
	})
	if status != "" {
		b.docs[id.Hex()] = doc
		b.save(doc)
	}
	if what == "" {
		b.orphan(name, "")
	}
	return name
}

// save writes a document.
func (b *backend) save(doc bson.D) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := b.db.ReplaceOne(ctx, doc[:1], doc, options.Replace().SetUpsert(true))
	if err != nil {
		b.t.Errorf("the backend cannot write to MongoDB: %v", err)
	}
}

// start starts a bot.
func (b *backend) start(bot string) {
	b.alive("bots:state:" + bot)
	b.bots[bot] = false
	b.step("+bot:"+bot, func(ctx context.Context, p redis.Pipeliner) {
		p.SAdd(ctx, deployed, bot)
		p.Set(ctx, "bots:state:"+bot, "idle", 0)
	})
}

// play moves a bot from the one set to the other.
func (b *backend) play(bot string) {
	from, to := deployed, active
	if b.bots[bot] {
		from, to = to, from
	}
	b.bots[bot] = !b.bots[bot]
	b.step("", func(ctx context.Context, p redis.Pipeliner) {
		p.SMove(ctx, from, to, bot)
		p.SAdd(ctx, to, bot)
		p.Set(ctx, "bots:state:"+bot, to, 0)
	})
}

// crash leaves the state of a bot behind.
func (b *backend) crash(bot string) {
	delete(b.bots, bot)
	b.step("-bot:"+bot, func(ctx context.Context, p redis.Pipeliner) {
		p.SRem(ctx, deployed, bot)
		p.SRem(ctx, active, bot)
	})
	b.orphan("bots:state:"+bot, "")
}

// orphan notes what has to go.
func (b *backend) orphan(key, member string) {
	name := strings.TrimSpace(key + " " + member)
	b.dead[name] = func() bool {
		// A user of whom nobody knows since when waits from the first look on: for longer than a test.
		return b.there(key, member) && (member == "" || b.there("queue:joinedAt:"+member, ""))
	}
}

func (b *backend) alive(name string) { delete(b.dead, name) }

// live makes what a backend has on an ordinary day. hidden: also rooms that have no channel.
func (b *backend) live(hidden bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range 5 {
		room := b.open(i != 1, !hidden || i != 2) // 1 is delisted, 2 has no channel
		for range 2 {
			b.seat(b.name("user"), room, old)
		}
	}
	for user := range b.seats { // they stand in the queue, too, for an hour
		b.step("", func(ctx context.Context, p redis.Pipeliner) { b.join(ctx, p, user, time.Hour) })
	}
	b.seat(b.name("user"), b.open(false, false), fresh) // in its onCreate
	b.step("", func(ctx context.Context, p redis.Pipeliner) {
		p.Set(ctx, "queue:reservation:creating", `{"status":"creating"}`, time.Hour)
		p.Set(ctx, "queue:reservation:broken", `{"roomId":`, old)
		p.Set(ctx, "match:lobby", "{}", 0)
		p.Set(ctx, "queue:elo:notes", "{}", 0)
		p.ZAdd(ctx, queue, redis.Z{Score: 1, Member: "undated"})
	})
	b.step("+user:undated +match:lobby", nil)
	for range 5 {
		b.wait(b.name("user"))
		b.match("ongoing", 0)
		b.start(b.name("bot"))
		bot := b.name("bot")
		b.start(bot)
		b.play(bot)
	}
	b.match("finished", time.Minute)
	b.match("", 0) // its document is not there yet
}

// leak leaves some of each kind behind that nobody comes back to, and returns their names.
func (b *backend) leak() (names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := maps.Clone(b.dead)
	room := b.open(true, true)
	b.seat(b.name("left"), room, old)
	b.seat(b.name("left"), room, old)
	b.close(room)
	b.stuck(b.name("left"))
	b.match("finished", 2*time.Hour)
	bot := b.name("left")
	b.start(bot)
	b.crash(bot)
	for name := range b.dead {
		if before[name] == nil {
			names = append(names, name)
		}
	}
	return names
}

// forget forgets what has gone.
func (b *backend) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.dead, func(_ string, there func() bool) bool { return !there() })
}

// left are the things that have to go and are there: of some, or of all if nil.
func (b *backend) left(of []string) (names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, there := range b.dead {
		if (of == nil || slices.Contains(of, name)) && there() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// heal writes again what a living backend writes all the time.
func (b *backend) heal() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.step("", func(ctx context.Context, p redis.Pipeliner) {
		for id, sub := range b.rooms {
			if sub != nil && !b.quiet[id] {
				p.HSet(ctx, listing, id, `{"roomId":"`+id+`"}`)
			}
		}
		for bot, plays := range b.bots {
			to := map[bool]string{false: deployed, true: active}[plays]
			p.SAdd(ctx, to, bot)
			p.SetNX(ctx, "bots:state:"+bot, to, 0)
		}
		for user, room := range b.seats {
			if b.rooms[room] == nil {
				continue // it has no channel: once its seats are old, its listing alone would keep them
			}
			p.SetNX(ctx, "queue:reservation:"+user, `{"roomId":"`+room+`"}`, old)
		}
		for user := range b.waits {
			p.ZAddNX(ctx, queue, redis.Z{Score: 1500, Member: user})
			p.SetNX(ctx, "queue:joinedAt:"+user, time.Now().UnixMilli(), 0)
		}
	})
}

// there tells whether a key, or a member of a sorted set, is there, as far as Redis answers.
func (b *backend) there(key, member string) bool {
	ctx := context.Background()
	if member != "" {
		return !errors.Is(b.rdb.ZScore(ctx, key, member).Err(), redis.Nil)
	}
	n, err := b.rdb.Exists(ctx, key).Result()
	return err != nil || n == 1
}

// has tells whether a room has its channel.
func has(sub *redis.PubSub) bool { return sub != nil }
