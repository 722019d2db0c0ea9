package browser

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// chromium finds the browser, once. Where there is none a test is skipped; scripts/test lets no
// test be skipped.
var chromium = sync.OnceValues(func() (string, error) {
	find := exec.Command("../../scripts/chromium")
	find.Stderr = os.Stderr
	out, err := find.Output()
	return strings.TrimSpace(string(out)), err
})

// tab is one tab of a headless browser.
type tab struct {
	t   *testing.T
	ctx context.Context
}

// closeBrowser ends what browser started.
var closeBrowser = func() {}

// browser starts one browser for all tests: to start it is most of what a page costs.
var browser = sync.OnceValues(func() (context.Context, error) {
	path, err := chromium()
	if err != nil {
		return nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path),
		chromedp.NoSandbox, // as root, in containers
		chromedp.Flag("disable-dev-shm-usage", true))
	ctx, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, leave := chromedp.NewContext(ctx)
	closeBrowser = func() {
		_ = chromedp.Cancel(ctx) // waits for it
		leave()
		stop()
	}
	return ctx, chromedp.Do(ctx) // starts it
})

// browse opens a tab of this width. It shares nothing with those of other tests: what one of them
// keeps, or has in front, is not seen here.
func browse(t *testing.T, width int64) *tab {
	t.Helper()
	if _, err := chromium(); err != nil {
		t.Skip("no Chromium: scripts/chromium says why")
	}
	parent, err := browser()
	require.NoError(t, err)
	ctx, leave := chromedp.NewContext(parent, chromedp.WithNewBrowserContext())
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // closes the tab, and waits for it
		leave()
	})
	b := &tab{t: t, ctx: ctx}
	require.NoError(t, chromedp.Do(ctx)) // opens it
	messages := chromedp.Console(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for m, err := range messages {
			if err != nil {
				return
			}
			// What the network refuses is part of tests; a script that fails is not.
			if m.IsException() || m.Source == "security" {
				t.Errorf("the page says: %v", m)
			}
		}
	}()
	t.Cleanup(func() { leave(); <-ended })
	b.narrow(width)
	return b
}

// narrow changes the screen's width.
func (b *tab) narrow(width int64) { b.t.Helper(); b.do(chromedp.EmulateViewport(width, 800)) }

// unfold opens a part that is folded.
func (b *tab) unfold(id string) {
	b.t.Helper()
	b.await(`document.getElementById("` + id + `").open = true`)
}

// do runs steps, each of which may take as long as anything.
func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	require.NoError(b.t, chromedp.Do(ctx, steps...))
}

// open opens a page.
func (b *tab) open(url string) { b.t.Helper(); b.do(chromedp.Navigate(url)) }

// await waits until an expression is true, and returns how long that took.
func (b *tab) await(expression string) time.Duration {
	b.t.Helper()
	begun := time.Now()
	_, err := chromedp.Run(b.ctx,
		chromedp.Poll[any](expression, chromedp.WithPollingInterval(20*time.Millisecond),
			chromedp.WithPollingTimeout(patience)))
	if err != nil {
		b.t.Log(b.shown())
	}
	require.NoError(b.t, err, expression)
	return time.Since(begun)
}

// live waits until the page follows the fleet.
func (b *tab) live() {
	b.t.Helper()
	b.await(`document.getElementById("link").textContent === "● live"`)
}

// page opens a replica's page in a browser of this width, and returns when it follows the fleet.
func (r *replica) page(t *testing.T, width int64) *tab {
	t.Helper()
	b := browse(t, width)
	b.open(r.base)
	b.live()
	return b
}

// says waits until an element's text contains another.
func (b *tab) says(id, text string) {
	b.t.Helper()
	b.await(`document.getElementById("` + id + `").textContent.includes(` + quoted(text) + `)`)
}

func quoted(text string) string { return "`" + strings.ReplaceAll(text, "`", "\\`") + "`" }

// ask evaluates an expression.
func ask[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	require.NoError(b.t, err, expression)
	return v
}

// shown is what a person reads.
func (b *tab) shown() string {
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](`document.body.innerText`))
	if err != nil {
		return err.Error()
	}
	return v
}

// enter types into a field. A script puts the cursor there: to find a field among the nodes of a
// page on which a thousand rows change takes a busy machine minutes.
func (b *tab) enter(selector, text string) {
	b.t.Helper()
	field := "document.querySelector(" + quoted(selector) + ")"
	b.await(field + "?.checkVisibility()")
	b.await("(" + field + ".focus(), document.activeElement === " + field + ")")
	b.do(chromedp.KeyEvent(text))
}

// click presses what is shown and can be pressed. A script presses, not the mouse at coordinates:
// the page is live, so what stood there may have moved before the mouse arrives.
func (b *tab) click(selector string) {
	b.t.Helper()
	button := "document.querySelector(" + quoted(selector) + ")"
	b.await(button + "?.checkVisibility() && !" + button + ".matches(':disabled')")
	b.await(button + ".click() || true")
}

// prefers sets what the browser's user prefers.
func (b *tab) prefers(name, value string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: name, Value: value}},
	})
	require.NoError(b.t, err)
}
