package console

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/http/httptest"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/cmd/internal/reload"
	"github.com/rollcall-redis/rollcall/docs"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// text is what a person reads of a page.
func text(html string) string {
	html = regexp.MustCompile(`(?s)<template.*</template>|<[^>]*>`).ReplaceAllString(html, " ")
	return regexp.MustCompile(`\s+`).ReplaceAllString(html, " ")
}

// fleetPage gives the page a fleet of its own, on the shared Redis.
func fleetPage(t *testing.T) (b *bench, f *served) {
	t.Helper()
	f = &served{client: redistest.Shared(t).Client(), keys: guard.Layout{Prefix: redistest.Prefix(t)}}
	b = setup(t, func(c *HTTPConfig) { c.Client, c.Layout = f.client, f.keys })
	return b, f
}

func TestThePageShowsTheFleetWithoutScripts(t *testing.T) {
	t.Parallel()
	b, f := fleetPage(t)
	ctx := t.Context()
	f.lives(t, "ingest-1")
	f.lives(t, "ingest-2")
	require.NoError(t, f.client.SAdd(ctx, f.keys.Roster(), "ingest-7").Err())
	require.NoError(t, f.client.HSet(ctx, f.keys.Registry(), "356307040000018", "ingest-7").Err())
	b.tells(t, `
		200 GET / ~ Rollcall bench seen from ingest-1
		200 GET / ~ 3 things need a look
		200 GET / ~ Nobody leads, so nothing dead is swept\.
		200 GET / ~ Nobody has listened to this Redis yet, so nothing is swept\.
		200 GET / ~ ingest-7 is silent; 1 entry is still in its name\. What is left stays until sweeping goes on
		200 GET / ~ 2 live, 1 silent
		200 GET / ~ 1 entry
		200 GET / ~ reloaded every 5 s`)
	body := b.shows(t, "/")
	require.Contains(t, body, `<noscript><meta http-equiv="refresh" content="5"></noscript>`)
	require.Contains(t, body, `href="docs/runbook.md#rollcallnobodyleads"`)
	require.Less(t, strings.Index(body, `data-id="ingest-7"`), strings.Index(body, `data-id="ingest-1"`),
		"the silent come first")
}

func TestTheSearchWorksWithoutScripts(t *testing.T) {
	t.Parallel()
	b, f := fleetPage(t)
	f.lives(t, "ingest-1")
	require.NoError(t, f.client.HSet(t.Context(), f.keys.Registry(), "356307040000018", "ingest-1").Err())
	b.tells(t, `200 GET /?key=356307040000018 ~ kept: its owner ingest-1`)
	body := b.shows(t, "/?key=356307040000018")
	require.NotContains(t, body, "http-equiv", "an answer must not go while it is read")
	body = b.shows(t, "/?key=<script>alert(1)</script>")
	require.Contains(t, body, `value="&lt;script&gt;alert(1)&lt;/script&gt;"`)
	require.NotContains(t, body, "<script>alert")
}

func TestWithoutRedisThePageSaysSoAndWhatThisReplicaKnows(t *testing.T) {
	t.Parallel()
	b, f := fleetPage(t)
	require.NoError(t, f.client.Close())
	b.tells(t, `
		200 GET / ~ The state of the fleet is not known
		200 GET / ~ Redis cannot be asked:
		200 GET / ~ 12,345 of ingest-1
		200 GET / ~ What happened the last hour, UTC Not known: Redis does not answer`)
	body := b.shows(t, "/")
	require.NotContains(t, text(body), "Nothing happened")
}

func TestWhatThisReplicaKnowsToBeWrongIsOnThePagesFirstLines(t *testing.T) {
	t.Parallel()
	b, _ := fleetPage(t)
	b.status.NotReady = "draining: this replica stops"
	b.status.Redis.Warnings = []string{"for trying out"}
	b.status.Files = []reload.Status{{Setting: "REDIS_PASSWORD_FILE", Error: "WRONGPASS wrong."}}
	body := b.shows(t, "/")
	_, problems, _ := strings.Cut(body, `<ul id="problems">`)
	problems, _, _ = strings.Cut(problems, "</ul>")
	require.Contains(t, problems, "ingest-1: not ready: draining: this replica stops.")
	require.Contains(t, problems, "for trying out")
	require.Contains(t, problems, "ingest-1: the file of REDIS_PASSWORD_FILE cannot be used: WRONGPASS wrong.")
	require.Contains(t, problems, "runbook.md#rollcallfilefailing")
}

func TestThePageNamesTheCauseWhyRedisIsNotRead(t *testing.T) {
	t.Parallel()
	for says, want := range map[string]string{
		"redis: invalid reply: \"HTTP/1.1 400\"": "the server at REDIS_URL is no Redis: ",
		"i/o timeout":                            "Redis does not answer in time ",
		"x509: certificate has expired":          "a certificate on the way to Redis has expired ",
		"write: broken pipe":                     "Redis ends connections at once ",
	} {
		require.Contains(t, inspect.Unanswered(errors.New(says)).Sentence, want)
	}
}

func TestABrowserRunsAndShowsNothingThatIsNotTheReplicas(t *testing.T) {
	t.Parallel()
	b, f := fleetPage(t)
	f.lives(t, "ingest-1")
	w := httptest.NewRecorder()
	b.operator.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
	policy := w.Header().Get("Content-Security-Policy")
	require.Contains(t, policy, "default-src 'none'; script-src 'self'; style-src 'self'")
	require.NotContains(t, policy, "unsafe")
	body := w.Body.String()
	require.NotRegexp(t, `<style|\sstyle=|\son[a-z]+=|<script(?:[^>]*)>[^<]`, body, "nothing inline")
	assets := regexp.MustCompile(`(?:href|src)="(page/[^"?]+)"`).FindAllStringSubmatch(body, -1)
	require.Len(t, assets, 3)
	for _, a := range assets {
		b.shows(t, "/"+a[1])
	}
	imported := regexp.MustCompile(`from "\./([^"]+)"`)
	files, err := fs.Glob(pageFiles, "page/*.js")
	require.NoError(t, err)
	for _, name := range files {
		script, err := fs.ReadFile(pageFiles, name)
		require.NoError(t, err)
		require.NotRegexp(t, `https?://(?:[^$"]|\$[^{])`, string(script), name)
		require.NotRegexp(t, `innerHTML|outerHTML|insertAdjacentHTML|document\.write|localStorage|eval\(`,
			string(script), name)
		for _, other := range imported.FindAllStringSubmatch(string(script), -1) {
			b.shows(t, "/page/"+other[1])
		}
	}
	for _, path := range []string{"/page/page.html", "/page/own.html", "/page/nope.js", "/page/../page.go"} {
		code, _ := b.get(t, path)
		require.NotEqual(t, 200, code, path)
	}
}

func TestEachHeadingThatAPageLinksToIsServed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	served := map[string]string{}
	require.NoError(t, fs.WalkDir(docs.Files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			body := b.shows(t, "/docs/"+name)
			served[name] = body
		}
		return err
	}))
	links := 0
	for name, body := range served {
		if path.Ext(name) != ".md" {
			continue
		}
		_, body, _ := strings.Cut(body, "<article>")
		for _, found := range regexp.MustCompile(
			`(?:href|src)="([^"#:]*)(?:#([^"]+))?"`).FindAllStringSubmatch(body, -1) {
			to := name
			if found[1] != "" {
				to = path.Join(path.Dir(name), found[1])
			}
			links++
			require.NotEmpty(t, served[to], "%s links to %s", name, to)
			if found[2] != "" {
				require.Contains(t, served[to], `id="`+found[2]+`"`, "%s links to %s#%s", name, to, found[2])
			}
		}
	}
	require.Greater(t, links, 100)
	require.Contains(t, served["reference/faults.md"], `href="../../page/page.css"`)
	require.Contains(t, served["reference/faults.md"], `href="`+repository+`chaos/README.md"`)
	body := b.shows(t, "/docs/")
	require.Contains(t, body, `<a href="runbook.md">`)
	code, _ := b.get(t, "/docs/nope.md")
	require.Equal(t, 404, code)
}

func TestACertificateThatEndsWithinFourteenDaysIsAProblem(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for left, want := range map[time.Duration]string{
		15 * 24 * time.Hour: "", 13*24*time.Hour + time.Minute: "warning: one: the certificate of CERT expires in 13d",
		-time.Hour: "wrong: one: the certificate of CERT expired 1h",
	} {
		st := Status{Instance: "one", Time: now, Files: []reload.Status{{Setting: "CERT", Ends: now.Add(left)}}}
		text := ""
		for _, p := range st.Knows().Findings("one", now, nil) {
			text += string(p.Level) + ": " + p.Sentence
		}
		require.Equal(t, want == "", text == "")
		require.Contains(t, text, want)
	}
}

func TestAFleetThatHasJustStartedIsNoReasonToWorry(t *testing.T) {
	t.Parallel()
	now := time.Now()
	of := func(started time.Duration, more ...inspect.Finding) pageView {
		v := pageView{Fleet: &inspect.Status{Now: now, Instances: []inspect.Instance{
			{ID: "one", Alive: true, Started: now.Add(-started)},
		}}, Base: Status{Time: now, Started: now.Add(-started)}}
		v.Problems = append([]inspect.Finding{{Name: "leader", Level: inspect.Wrong}, {Name: "failing:not_ready"}}, more...)
		return v
	}
	require.Equal(t, verdict{"new", "Just started"}, of(5*time.Second).Verdict())
	require.Equal(t, "new", of(5*time.Second).ClassOf(inspect.Finding{Level: inspect.Wrong}))
	require.Equal(t, verdict{"bad", "2 things need a look"}, of(time.Minute).Verdict())
	require.Equal(t, "bad", of(5*time.Second, inspect.Finding{Name: "memory"}).Verdict().Class)
}

func TestAnInstanceIsOneLineWithWhatIsRemarkableFirst(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := &inspect.Status{Now: now, Leader: &inspect.Leader{Instance: "ingest-9"}}
	in := func(id string, beat time.Duration, change func(*inspect.Instance)) {
		one := inspect.Instance{ID: id, Alive: true, Devices: 5, Interval: "10s", LastBeat: now.Add(-beat)}
		change(&one)
		s.Instances = append(s.Instances, one)
	}
	in("ingest-10", time.Second, func(in *inspect.Instance) { in.Devices = 10 })
	in("ingest-2", time.Second, func(in *inspect.Instance) {
		in.Version = "v0.1.0-0.20261124120000-4b9f82ba1b2c+dirty"
	})
	in("ingest-9", time.Second, func(*inspect.Instance) {})
	in("ingest-3", 16*time.Second, func(*inspect.Instance) {})
	in("ingest-1", 60*time.Second, func(in *inspect.Instance) { in.Alive = false })
	v := pageView{Fleet: s, Base: Status{Instance: "ingest-3"}}
	rows := v.List().Rows
	var got []string
	for _, r := range rows {
		got = append(got, r.ID+": "+r.Remarks)
	}
	require.Equal(t, []string{"ingest-1: silent", "ingest-3: late · this replica", "ingest-9: leads", "ingest-2: ",
		"ingest-10: "}, got)
	require.Equal(t, "4b9f82ba+", rows[3].Short)
	require.InDelta(t, 50, rows[3].Share, 0.01)
	require.InDelta(t, 100, rows[4].Share, 0.01)
}

func TestThePageOfAThousandInstancesIsMadeQuickly(t *testing.T) {
	t.Parallel()
	b, f := fleetPage(t)
	p := f.client.Pipeline()
	beat := strconv.FormatInt(time.Now().UnixMilli(), 10) + "/" + boot
	for i := range 1000 {
		id := "ingest-" + strconv.Itoa(i)
		p.SAdd(t.Context(), f.keys.Roster(), id)
		p.Set(t.Context(), f.keys.Heartbeat(id), beat, time.Minute)
	}
	_, err := p.Exec(t.Context())
	require.NoError(t, err)
	begun := time.Now()
	body := b.shows(t, "/")
	t.Logf("a page of 1,000 instances: %v, %d kB", time.Since(begun).Round(time.Millisecond), len(body)>>10)
	require.Equal(t, 50, strings.Count(body, "<meter"))
	require.Contains(t, text(body), "50 of 1,000 instances Show all 1,000")
	body = b.shows(t, "/?all=1")
	require.Equal(t, 1000, strings.Count(body, "<meter"))
	b.tells(t, `200 GET /?match=INGEST-77 ~ 11 of 1,000 instances`)
	body = b.shows(t, "/?match=INGEST-77")
	require.Equal(t, 11, strings.Count(body, "<meter"), "77 and 770 to 779")
	body = b.shows(t, "/?odd=on")
	require.Zero(t, strings.Count(body, "<meter"))
	v := pageView{Fleet: &inspect.Status{Instances: make([]inspect.Instance, 2*mostAll)}, Look: look{All: true}}
	require.Len(t, v.List().Rows, mostAll)
	require.Contains(t, v.List().Shown, "1,000 of 2,000")
}

func TestThePageShowsSeveralPartitionsAsOneFleet(t *testing.T) {
	t.Parallel()
	const imei = "356307040000018"
	f := &served{client: redistest.Shared(t).Client(), keys: guard.Layout{Prefix: "{" + redistest.Prefix(t) + "}:"}}
	b := setup(t, func(c *HTTPConfig) { c.Client, c.Layout = f.client, f.keys })
	ctx := t.Context()
	require.NoError(t, f.client.Set(ctx, f.keys.Partitions(), "4", 0).Err())
	for k := range 4 {
		part := f.keys.Partition(k, 4)
		(&served{client: f.client, keys: part}).lives(t, "ingest-1")
		if k != 2 {
			require.NoError(t, f.client.Set(ctx, part.Lease(), "ingest-1/x", time.Hour).Err())
		}
	}
	part := f.keys.Partition(guard.PartitionOf(imei, 4), 4)
	require.NoError(t, f.client.HSet(ctx, part.Registry(), imei, "ingest-1").Err())
	b.tells(t, `
		200 GET / ~ Partition 2: Nobody leads, so nothing dead is swept\.
		200 GET / ~ ingest-1 0-1, 3
		200 GET / ~ 4, led here: 3
		200 GET / ~ 1 live
		200 GET / ~ 1 entry
		200 GET / ~ leads 0-1, 3 · this replica
		200 GET /api/v1/devices/$IMEI ~ ingest-1 holds $IMEI`, "$IMEI", imei)
	body := b.shows(t, "/api/v1/fleet")
	var answer fleetStatus
	require.NoError(t, json.Unmarshal([]byte(body), &answer))
	require.Equal(t, []inspect.Leads{{Instance: "ingest-1", Partitions: []int{0, 1, 3}}},
		answer.Partitions.Leaders)
	require.Equal(t, "leader", answer.Problems[0].Name)
	require.Equal(t, []int{2}, answer.Problems[0].Of)
}
