package browser

import (
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// The leader is killed: the page of another replica shows the fleet, who leads then, and what went.
func TestThePageOfAnyReplicaShowsTheFleetAndAKillAndWhyADeviceIsGone(t *testing.T) {
	t.Parallel()
	f := start(t, 3)
	leads, other := f.leader()
	imei := f.connect(leads, 5)[0]
	b := other.page(t, 1280)
	b.says("verdict", "All is well")
	b.says("leader", leads.id)
	b.says("living", "3 live")
	b.says("entries", "5 entries")
	b.says("events", leads.id+" leads")
	b.says("passes", "registry")
	b.await(`document.querySelector("tr[data-id=` + leads.id + `] .devices").textContent === "5"`)
	address := strings.TrimSuffix(strings.TrimPrefix(leads.base, "http://"), "/")
	require.Equal(t, address, ask[string](b, `document.querySelector("#leader a").title`),
		"where the leader's own page is")
	require.Zero(t, ask[int](b, `document.querySelectorAll("a[href^=http]").length`), "anybody may write an address")
	require.Contains(t, ask[string](b, `document.querySelector("details:has(#own) summary").innerText`), other.id)
	b.enter("#key", imei+kb.Enter)
	b.says("answer", "kept: its owner "+leads.id+" beat")
	require.Equal(t, "?key="+imei, ask[string](b, `location.search`), "the answer can be given to others")
	term := ask[string](b, `document.getElementById("term").textContent.match(/term (\d+)/)[1]`)

	leads.Kill()
	b.await(`document.getElementById("leader").textContent !== "` + leads.id +
		`" && document.getElementById("leader").textContent !== "nobody"`)
	b.await(`(document.getElementById("term").textContent.match(/term (\d+)/) ?? ["", "0"])[1] > "` + term +
		`"`)
	b.says("events", leads.id+" fell silent")
	b.says("events", "5 evicted of "+leads.id)
	b.says("entries", "0 entries")
	b.says("evicted", "5 evicted, ever")
	b.await(`!document.querySelector("tr[data-id=` + leads.id + `]")`)
	now, _ := f.leader()
	b.click("#find button")
	b.says("answer", "by "+now.id+" in term")
	require.Equal(t, 1, ask[int](b, `document.querySelectorAll("#records li").length`),
		"the record that names it")
	b.do(chromedp.Clear(chromedp.CSS("#key")))
	b.enter("#key", "<img src=x onerror=alert(1)>"+kb.Enter)
	b.says("answer", "no record of the eviction log names it")
	require.Zero(t, ask[int](b, `document.querySelectorAll("#answer img").length`))
}

func TestTheTokenOpensTheActionsAndEachDoesWhatItSays(t *testing.T) {
	t.Parallel()
	f := start(t, 2)
	leads, other := f.leader()
	b := leads.page(t, 1280)
	b.unfold("act")
	b.enter("#token", "not-the-right-one"+kb.Enter)
	b.click("#resume")
	b.says("outcome", "The token was refused.")
	b.await(`document.getElementById("forms").hidden && document.activeElement.id === "token"`)
	require.Equal(t, 0, ask[int](b, `sessionStorage.length + localStorage.length`))
	b.authorize()

	// A dry run deletes nothing; pauses hold and end.
	b.enter("#pause-form [name=who]", "ann")
	b.enter("#pause-form [name=why]", "a test"+kb.Enter)
	b.says("problems", "Sweeping is paused by ann (a test) for")
	b.says("sweeping", "not now: paused")
	b.says("events", "paused by ann (a test)")
	// What stands in the name of somebody dead stays while sweeping is paused.
	require.NoError(t, f.client.HSet(t.Context(), "connections:registry", "356307042440014", "gone").Err())
	require.NoError(t, f.client.HSet(t.Context(), "janitor:beats", "gone", "1/1000/500/1/0/h").Err())
	b.says("problems", "gone is silent; 1 entry is still in its name")
	b.click("[name=dry_run]") // it can be asked for in a pause, too
	b.await(`[...document.querySelectorAll("#outcome tr")].some(r => r.textContent.startsWith("registry (dry run)") &&
		r.children[4].textContent === "1" && r.children[5].textContent === "0")`)
	require.True(t, f.client.HExists(t.Context(), "connections:registry", "356307042440014").Val())
	b.click("#resume")
	b.says("outcome", "Resumed.")
	b.says("problems", "1 of its entries was evicted")
	require.False(t, f.client.HExists(t.Context(), "connections:registry", "356307042440014").Val())

	b.click("[name=dry_run]")
	b.says("outcome", "(dry run)")
	require.Zero(t, ask[int](b, `document.querySelectorAll("#sure[open]").length`), "a dry run asks nobody")
	b.click("#sweep-form .strong")
	b.await(`document.getElementById("sure").open`)
	b.click("#sure [value=no]")
	b.await(`!document.getElementById("sure").open`)
	b.says("outcome", "(dry run)")
	b.click("#sweep-form .strong")
	b.click("#yes")
	b.await(`document.querySelector("#outcome table") && !document.getElementById("outcome").textContent.includes("dry run")`)

	require.NotContains(t,
		ask[string](b, `performance.getEntries().map(e => e.name).join() + location + document.cookie`),
		token)
	require.NotContains(t, ask[string](b, `document.documentElement.outerHTML`), token)
	b.click("#forget")
	require.Equal(t, 0, ask[int](b, `sessionStorage.length`))

	// Only the leader resigns, and others say where it is.
	b.open(other.base)
	b.live()
	b.authorize()
	b.click("#resign-form button")
	b.click("#yes")
	b.says("outcome", "Do it on the page of "+leads.id)
	b.open(leads.base)
	b.live()
	b.authorize()
	b.click("#resign-form button")
	b.click("#yes")
	b.says("events", leads.id+" resigned")
	b.says("leader", other.id)
}

// authorize gives the page the token.
func (b *tab) authorize() {
	b.t.Helper()
	b.unfold("act")
	b.enter("#token", token+kb.Enter)
	b.await(`!document.getElementById("forms").hidden`)
}

func TestThePageSaysWhenItIsCutOffAndComesBack(t *testing.T) {
	t.Parallel()
	f := start(t, 1)
	leads, _ := f.leader()
	b := leads.page(t, 1280)
	f.server.Stop() // Redis stands still
	b.says("link", "Redis does not answer this replica.")
	b.says("link", "old")
	require.Equal(t, "ingest-1", ask[string](b, `document.querySelector("#rows th").textContent`),
		"what was known stays")
	require.NotContains(t, ask[string](b, `document.getElementById("rows").textContent`), "silent")
	f.server.Cont()
	b.live()
	leads.Kill()
	b.says("link", "Cut off from this replica")
	b.says("link", "old")
}

func TestWithoutScriptsThePageIsATableThatReloads(t *testing.T) {
	t.Parallel()
	f := start(t, 2)
	leads, other := f.leader()
	f.connect(leads, 2)
	b := browse(t, 1280)
	_, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: true})
	require.NoError(t, err)
	b.open(other.base)
	f.eventually("a reload finds all well",
		func() bool { return contains(b, "All is well") && contains(b, "2 entries") })
	text := b.shown()
	for _, want := range []string{"All is well", leads.id, other.id, "2 live", "2 entries",
		"reloaded every 5 s"} {
		require.Contains(t, text, want)
	}
	require.Contains(t, ask[string](b, `document.querySelector("#act noscript").textContent`),
		"Buttons need scripts")
	require.Zero(t, ask[int](b, `[...document.querySelectorAll("#forms")].filter(e => e.offsetHeight > 0).length`))
	require.NoError(t, f.client.Set(t.Context(), "janitor:paused", "by hand", 0).Err())
	f.eventually("the page has reloaded", func() bool { return contains(b, "not now: paused") })
	b.open(other.base + "?key=" + imeiOf(leads, 0))
	require.Contains(t, b.shown(), "kept: its owner "+leads.id)
}

// contains looks into a page that may be reloading.
func contains(b *tab, text string) bool {
	found, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](`document.body.innerText.includes("`+text+`")`))
	return err == nil && found
}

func TestTheKeyboardAloneReachesAndUsesEverything(t *testing.T) {
	t.Parallel()
	f := start(t, 1)
	leads, _ := f.leader()
	imei := f.connect(leads, 1)[0]
	b := leads.page(t, 1280)
	key := func(keys string) { b.do(chromedp.KeyEvent(keys)) }
	focus := func() string {
		return ask[string](b,
			`(e => e.id || e.name || (e.form?.id + " " + e.textContent) || e.tagName)(document.activeElement)`)
	}
	to := func(id string) {
		t.Helper()
		for range 60 {
			if focus() == id {
				return
			}
			key(kb.Tab)
			require.True(t, ask[bool](b,
				`document.activeElement.matches(":focus-visible") || document.activeElement === document.body`))
		}
		require.Fail(t, "Tab does not reach it", id)
	}
	key(kb.Tab)
	require.Equal(t, "To the content", ask[string](b, `document.activeElement.textContent`),
		"the first stop skips the header")
	to("key")
	key(imei)
	key(kb.Enter)
	b.says("answer", "kept")
	to("act-title")
	key(kb.Enter)
	to("token")
	key(token)
	key(kb.Enter)
	b.await(`document.activeElement.name === "owner"`)
	to("dry_run")
	key(kb.Enter)
	b.says("outcome", "(dry run)")
	key(kb.Tab)
	key(kb.Enter)
	b.await(`document.getElementById("sure").open`)
	require.Equal(t, "No", ask[string](b, `document.activeElement.textContent`),
		"the harmless answer is the one at hand")
	key(kb.Escape)
	b.await(`!document.getElementById("sure").open`)
	require.Equal(t, "Sweep", ask[string](b, `document.activeElement.textContent`), "back where it was")
}

func TestEachControlHasANameAndThePageHasLandmarks(t *testing.T) {
	t.Parallel()
	f := start(t, 2)
	leads, _ := f.leader()
	b := leads.page(t, 1280)
	b.authorize()
	tree, err := chromedp.Call(b.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	require.NoError(t, err)
	text := func(v *accessibility.Value) string {
		if v == nil {
			return ""
		}
		s, err := strconv.Unquote(string(v.Value))
		if err != nil {
			return ""
		}
		return s
	}
	named, roles := 0, map[string]int{}
	for _, n := range tree.Nodes {
		role := text(n.Role)
		roles[role]++
		switch role {
		case "button", "textbox", "searchbox", "combobox", "checkbox", "link", "meter", "progressbar",
			"table", "form", "region", "group":
			if !n.Ignored {
				named++
				require.NotEmpty(t, text(n.Name), "a %s has no name", role)
			}
		}
	}
	require.Greater(t, named, 25)
	for _, role := range []string{"main", "banner", "contentinfo", "search", "region", "table", "heading",
		"status"} {
		require.NotZero(t, roles[role], "no %s", role)
	}
	for _, scheme := range []string{"light", "dark"} {
		b.prefers("prefers-color-scheme", scheme)
		poor := ask[[]string](b, contrast)
		require.Empty(t, poor, scheme)
	}
	b.prefers("prefers-reduced-motion", "reduce")
	require.Zero(t, ask[int](b,
		`[...document.querySelectorAll("*")].filter(e => getComputedStyle(e).transitionDuration !== "0s").length`))

	// A narrow screen needs no scrolling sideways.
	b.narrow(320)
	b.enter("#key", strings.Repeat("356307042440013", 4)+kb.Enter)
	b.says("answer", "not there")
	require.LessOrEqual(t, ask[int](b, `document.documentElement.scrollWidth`), 320)
	b.open(leads.base + "docs/runbook.md#gap")
	require.LessOrEqual(t, ask[int](b, `document.documentElement.scrollWidth`), 320)
	require.Equal(t, "gap", ask[string](b, `document.querySelector(":target").textContent`))
}

// contrast lists texts of less than 4.5 to 1, as WCAG AA counts it.
const contrast = `(() => {
	const parts = (c) => { const m = c.match(/[\d.]+/g).map(Number); return { rgb: m.slice(0, 3), a: m[3] ?? 1 }; };
	const light = (rgb) => { const [r, g, b] = rgb.map((v) => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
	const poor = [];
	for (const e of document.querySelectorAll("body *")) {
		if (![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()) || !e.checkVisibility() || e.matches(".unseen, .skip, noscript, option")) continue;
		let back = e;
		while (back && parts(getComputedStyle(back).backgroundColor).a === 0) back = back.parentElement;
		const [a, b] = [parts(getComputedStyle(e).color).rgb, parts(getComputedStyle(back ?? document.body).backgroundColor).rgb].map(light).sort((x, y) => y - x);
		if ((a + .05) / (b + .05) < 4.5) poor.push(e.tagName + "." + e.className + " " + e.textContent.trim().slice(0, 40) + " " + ((a + .05) / (b + .05)).toFixed(2));
	}
	return poor;
})()`
