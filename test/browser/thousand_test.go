package browser

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// crowd writes what instances that live have in Redis: heartbeats, roster entries, indexes. They
// beat each 10 s, a tenth of them each second.
func (f *fleet) crowd(n int) {
	f.t.Helper()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("crowd-%04d", i)
	}
	f.beats(ids, strconv.FormatInt(time.Now().UnixMicro(), 10)+"0000000007", time.Minute, 10)
}

// beats puts instances on the roster, and has them beat each so many seconds, those of one second
// together.
func (f *fleet) beats(ids []string, boot string, ttl time.Duration, seconds int) {
	f.t.Helper()
	beat := func(some []string) {
		p := f.client.Pipeline()
		for _, id := range some {
			value := fmt.Sprintf("%d/%s", time.Now().UnixMilli(), boot)
			p.Set(f.t.Context(), "instance:heartbeat:"+id, value, ttl)
			p.SAdd(f.t.Context(), "instances:roster", id)
		}
		if _, err := p.Exec(f.t.Context()); err != nil && f.t.Context().Err() == nil {
			f.t.Error(err)
		}
	}
	beat(ids)
	stop, ended := make(chan struct{}), make(chan struct{})
	f.t.Cleanup(func() { close(stop); <-ended })
	go func() {
		defer close(ended)
		second := time.NewTicker(time.Second)
		defer second.Stop()
		for i := 0; ; i++ {
			select {
			case <-second.C:
				turn := i % seconds
				beat(ids[turn*len(ids)/seconds : (turn+1)*len(ids)/seconds])
			case <-stop:
				return
			}
		}
	}()
}

func TestAThousandInstancesAreUsable(t *testing.T) {
	f := start(t, 2)
	_, other := f.leader()
	f.crowd(998)
	b := other.page(t, 1280)
	b.says("living", "1,000 live")
	require.Equal(t, 50, ask[int](b, `document.querySelectorAll("#rows tr").length`), "a page of them")
	b.says("more", "Show all 1,000")
	b.click("#more")
	b.await(`document.querySelectorAll("#rows tr").length === 1000`)
	ask[bool](b, `(() => {
		window.heard = 0;
		const ask = window.fetch;
		window.fetch = (...args) => { window.heard++; return ask(...args); };
		window.firstRow = document.querySelector("tr[data-id=crowd-0007]");
		return true;
	})()`)
	const window = 3
	time.Sleep(window * time.Second) // what is counted is how often it asks
	heard := ask[int](b, `window.heard`)
	ask[bool](b, `(async () => {
		const { morph } = await import("./page/morph.js");
		const next = new DOMParser().parseFromString(await (await fetch("./?all=1")).text(), "text/html");
		morph(document.getElementById("list"), next.getElementById("list"));
		window.drawn = true;
	})() && true`)
	b.await(`window.drawn`)
	require.LessOrEqual(t, heard, window+2, "of many rows one in five seconds")
	require.True(t, ask[bool](b, `window.firstRow === document.querySelector("tr[data-id=crowd-0007]")`),
		"rows are changed in place")

	b.enter("#filter", "crowd-0777")
	b.await(`document.querySelectorAll("#rows tr").length === 1`)
}

var update = flag.Bool("update", false, "write the screenshots of docs/rollcall.md")

// The pictures show a fleet with something to see: first all is well, then a writer is silent while
// sweeping is paused.
func TestScreenshots(t *testing.T) {
	if !*update {
		for _, name := range []string{"light", "dark", "narrow"} {
			info, err := os.Stat("../../docs/page-" + name + ".png")
			require.NoError(t, err)
			require.Less(t, info.Size(), int64(250<<10))
		}
		return
	}
	f := night(t)
	leads, other := f.leader()
	f.connect(leads, 90)
	f.connect(other, 60)
	b := other.page(t, 1280)
	b.await(`document.querySelector("tr[data-id=` + leads.id + `] .devices").textContent === "90"`)
	shoot := func(name, scheme string, width int64) {
		b.prefers("prefers-color-scheme", scheme)
		b.narrow(width)
		b.live()
		picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile("../../docs/page-"+name+".png", picture, 0o644))
	}
	shoot("light", "light", 1280)
	until := `{"who": "ann", "why": "Redis upgrade", "until": "2030-01-01T00:00:00Z"}`
	require.NoError(t, f.client.Set(t.Context(), "janitor:paused", until, 30*time.Minute).Err())
	gone := "356307042440014"
	require.NoError(t, f.client.HSet(t.Context(), "connections:registry", gone, "ingest-33").Err())
	b.says("problems", "ingest-33 is silent")
	b.enter("#key", gone+"\r")
	b.says("answer", "ingest-33")
	b.do(chromedp.Blur(chromedp.CSS("#key")))
	shoot("dark", "dark", 1280)
	shoot("narrow", "light", 360)
}
