package availability

import (
	"embed"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/guard"
)

// keys names the mirror's keys. Other services read them, so only the layout's prefix may vary.
// keys.lua builds those of one mitra.
type keys struct{ guard.Layout }

func (k keys) online() string      { return k.Prefix + "mitras:online" }
func (k keys) deactivated() string { return k.Prefix + "mitras:deactivated" }
func (k keys) version() string     { return k.Prefix + "mitras:version" }
func (k keys) seeded() string      { return k.Prefix + "mitras:seeded" }
func (k keys) fed() string         { return k.Prefix + "mitras:fed" }

func (k keys) capacity(id string) string  { return k.Prefix + "mitra:capacity:" + id }
func (k keys) heartbeat(id string) string { return k.Prefix + "mitra:heartbeat:" + id }

func (k keys) snapshot() string  { return k.Prefix + "availability:snapshot" }
func (k keys) computing() string { return k.Prefix + "availability:snapshot:computing" }
func (k keys) noted() string     { return k.Prefix + "availability:offline" }

// invalidate is the channel that announces changed settings by name.
func (k keys) invalidate() string { return k.Prefix + "config:invalidate" }

func (k keys) all(more ...string) []string {
	return append([]string{k.online(), k.deactivated(), k.version(), k.seeded()}, more...)
}

//go:embed *.lua
var files embed.FS

// bodyKeys is a guarded body's first key; see guard.NewBody.
const bodyKeys = 6

// lua joins files after keys.lua. The four keys begin at KEYS[from].
func lua(from int, names ...string) string {
	text := fmt.Sprintf("local from = %d\n", from) + file("keys")
	for _, name := range names {
		text += file(name)
	}
	return text
}

func file(name string) string {
	text, err := files.ReadFile(name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(text)
}

var (
	applyScript     = redis.NewScript(lua(1, "iso", "heard", "apply"))
	beatsScript     = redis.NewScript(lua(1, "iso", "heard", "witness", "beats"))
	scanScript      = redis.NewScript(file("scan"))
	findPageScript  = redis.NewScript(lua(1, "iso", "heard", "witness", "findpage"))
	fitScript       = redis.NewScript(lua(1, "iso", "fit"))
	heartbeatScript = redis.NewScript(file("iso") + file("heartbeat"))
	removeScript    = redis.NewScript(lua(1, "remove"))
	feedScript      = redis.NewScript(file("iso") + file("feed"))
	statusScript    = redis.NewScript(lua(1, "iso", "heard", "witness", "status"))

	condemnBody = guard.NewBody(lua(bodyKeys, "iso", "heard", "condemn"))
)
