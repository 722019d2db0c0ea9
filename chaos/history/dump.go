package history

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// dumpPage is how many fields or members are written with one command.
const dumpPage = 1000

// writeCommand writes a command as an append-only file has it. The writer keeps its first error.
func writeCommand(w *bufio.Writer, c Command) {
	part := func(mark byte, n int) {
		w.WriteByte(mark)
		w.WriteString(strconv.Itoa(n))
		w.WriteString("\r\n")
	}
	part('*', len(c))
	for _, word := range c {
		part('$', len(word))
		w.WriteString(word)
		w.WriteString("\r\n")
	}
}

// writeEvents writes events, each one's commands between MULTI and EXEC if there are several.
func writeEvents(to io.Writer, h History) error {
	w := bufio.NewWriter(to)
	second := int64(0)
	for i := range h {
		e := &h[i]
		if e.Second != second {
			second = e.Second
			fmt.Fprintf(w, "#TS:%d\r\n", second)
		}
		if len(e.Commands) > 1 {
			writeCommand(w, Command{"MULTI"})
		}
		for _, c := range e.Commands {
			writeCommand(w, c)
		}
		if len(e.Commands) > 1 {
			writeCommand(w, Command{"EXEC"})
		}
	}
	return w.Flush()
}

// dump writes what a server holds as one [LifeCommand] event, for a new life of it that goes on in
// another part of the history. Nobody may write meanwhile.
func dump(ctx context.Context, c *redis.Client, why string, w *bufio.Writer) error {
	writeCommand(w, Command{"MULTI"})
	writeCommand(w, Command{LifeCommand, why})
	seen := make(map[string]bool)
	keys := c.Scan(ctx, 0, "", dumpPage).Iterator()
	for keys.Next(ctx) {
		key := keys.Val()
		if seen[key] {
			continue // a scan may say a key twice
		}
		seen[key] = true
		if err := dumpKey(ctx, c, key, w); err != nil {
			return err
		}
	}
	if err := keys.Err(); err != nil {
		return err
	}
	writeCommand(w, Command{"EXEC"})
	return nil
}

// dumpKey writes one key, unless it expires meanwhile or is of a type that is not ours.
func dumpKey(ctx context.Context, c *redis.Client, key string, w *bufio.Writer) error {
	kind, err := c.Type(ctx, key).Result()
	if err != nil {
		return err
	}
	switch kind {
	case "string":
		return dumpString(ctx, c, key, w)
	case "hash":
		hash, err := c.HGetAll(ctx, key).Result()
		if err != nil {
			return err
		}
		pairs := make([]string, 0, 2*len(hash))
		for field, value := range hash {
			pairs = append(pairs, field, value)
		}
		for page := range slices.Chunk(pairs, 2*dumpPage) {
			writeCommand(w, append(Command{"HSET", key}, page...))
		}
	case "set":
		members, err := c.SMembers(ctx, key).Result()
		if err != nil {
			return err
		}
		for page := range slices.Chunk(members, dumpPage) {
			writeCommand(w, append(Command{"SADD", key}, page...))
		}
	case "stream":
		info, err := c.XInfoStream(ctx, key).Result()
		if err != nil {
			return err
		}
		writeCommand(w, Command{"XADD", key, info.LastGeneratedID, "last", "one"})
	}
	return nil
}

func dumpString(ctx context.Context, c *redis.Client, key string, w *bufio.Writer) error {
	var value *redis.StringCmd
	var until *redis.DurationCmd
	_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		value, until = p.Get(ctx, key), p.PExpireTime(ctx, key)
		return nil
	})
	switch {
	case value != nil && value.Err() == redis.Nil:
		return nil
	case err != nil:
		return err
	}
	cmd := Command{"SET", key, value.Val()}
	if ms := until.Val().Milliseconds(); ms > 0 {
		cmd = append(cmd, "PXAT", strconv.FormatInt(ms, 10))
	}
	writeCommand(w, cmd)
	return nil
}
