package browser

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// crowd writes what instances that live have in Redis: heartbeats, roster entries, indexes. They
// beat each 10 s, a tenth of them each second.
func (f *fleet) crowd(n int) {
	f.t.Helper()
	boot := strconv.FormatInt(time.Now().UnixMicro(), 10)
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("crowd-%04d", i)
	}
	beat := func(some []string) {
		p := f.client.Pipeline()
		for _, id := range some {
			value := fmt.Sprintf("%d/%s%010d", time.Now().UnixMilli(), boot, 7)
			p.Set(f.t.Context(), "instance:heartbeat:"+id, value, time.Minute)
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
				beat(ids[i%10*n/10 : (i%10+1)*n/10])
			case <-stop:
				return
			}
		}
	}()
}

// ticks is how much of a processor a process has used, in hundredths of a second.
func ticks(t *testing.T, pid int) int {
	t.Helper()
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	user, err := strconv.Atoi(fields[11])
	require.NoError(t, err)
	system, err := strconv.Atoi(fields[12])
	require.NoError(t, err)
	return user + system
}

func TestAThousandInstancesAreUsable(t *testing.T) {
	f := start(t, 2)
	_, other := f.leader()
	f.crowd(1000)
	used := func(seconds int) float64 { // of a core, in percent
		before := ticks(t, other.PID())
		time.Sleep(time.Duration(seconds) * time.Second)
		return float64(ticks(t, other.PID())-before) / float64(seconds)
	}
	const window = 3
	alone := used(window)

	b := other.page(t, 1280)
	b.says("living", "1,002 live")
	require.Equal(t, 50, ask[int](b, `document.querySelectorAll("#rows tr").length`), "a page of them")
	b.says("more", "Show all 1,002")
	b.click("#more")
	require.Equal(t, 1002, ask[int](b, `document.querySelectorAll("#rows tr").length`))
	ask[bool](b, `(() => {
		window.heard = 0;
		const stream = new EventSource("api/v1/events");
		stream.addEventListener("fleet", () => window.heard++);
		window.firstRow = document.querySelector("tr[data-id=crowd-0007]");
		return true;
	})()`)
	one := used(window) // two streams: the page's, and the one that counts
	heard := ask[int](b, `window.heard`)
	drawn := ask[float64](b, `(() => {
		const begun = performance.now();
		document.getElementById("filter").value = "";
		document.getElementById("filter").dispatchEvent(new Event("input"));
		return performance.now() - begun;
	})()`)
	viewers := ask[int](b, `[1, 2, 3].map(() => new EventSource("api/v1/events")).length`) + 2
	five := used(window)
	t.Logf("1,000 instances: %.1f updates a second; the server uses %.1f %% of a core without a viewer, %.1f %% "+
		"with two, %.1f %% with %d: %.2f %% a further viewer; a redraw of all rows takes the browser %.0f ms",
		float64(heard)/window, alone, one, five, viewers, (five-one)/float64(viewers-2), drawn)
	require.LessOrEqual(t, heard, 2*window+2, "one update a second, and the first")
	require.True(t, ask[bool](b, `window.firstRow === document.querySelector("tr[data-id=crowd-0007]")`),
		"rows are changed in place")

	b.enter("#filter", "crowd-0777")
	b.await(`document.querySelectorAll("#rows tr").length === 1`)
}

var update = flag.Bool("update", false, "write the screenshots of docs/page.md")

// The pictures show a fleet with something to see: a leader that died, and a writer that is silent
// while sweeping is paused.
func TestScreenshots(t *testing.T) {
	if !*update {
		for _, name := range []string{"light", "dark", "narrow"} {
			info, err := os.Stat("../../docs/page-" + name + ".png")
			require.NoError(t, err)
			require.Less(t, info.Size(), int64(250<<10))
		}
		return
	}
	f := start(t, 4)
	leads, other := f.leader()
	for _, r := range f.replicas {
		f.connect(r, 3+len(r.id)%2*4+int(r.id[len(r.id)-1]-'0')*3)
	}
	gone := imeiOf(leads, 2)
	leads.Kill()
	f.eventually("the dead is swept", func() bool {
		return !f.client.HExists(t.Context(), "connections:registry", gone).Val()
	})
	b := other.page(t, 1280)
	b.says("events", "fell silent")
	shoot := func(name, scheme string, width int64) {
		b.prefers("prefers-color-scheme", scheme)
		b.do(chromedp.EmulateViewport(width, 900))
		b.live()
		picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile("../../docs/page-"+name+".png", picture, 0o644))
	}
	shoot("dark", "dark", 1280)
	until := `{"who": "ann", "why": "Redis upgrade", "until": "2030-01-01T00:00:00Z"}`
	require.NoError(t, f.client.Set(t.Context(), "janitor:paused", until, 30*time.Minute).Err())
	third := ""
	for id, r := range f.replicas {
		if s := f.status(); s.Leader != nil && id != s.Leader.Instance && id != other.id && r != leads {
			third = id
			r.Kill()
			break
		}
	}
	b.says("problems", third+" is silent")
	b.enter("#key", gone+"\r")
	b.says("answer", "evicted")
	b.do(chromedp.Blur(chromedp.CSS("#key")))
	shoot("light", "light", 1280)
	shoot("narrow", "light", 390)
}
