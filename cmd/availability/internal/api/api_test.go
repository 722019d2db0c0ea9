package api_test

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/availability/internal/api"
)

func TestAMitraGoesOnlineBeatsAndGoesOffline(t *testing.T) {
	r := newRig(t)
	id := r.mitra("a")
	status := func() answer { return r.plays("200 {A} GET /mitra/status") } // what it names is taken in lower case
	r.plays("409 {A} POST /mitra/heartbeat -> not-online")
	r.eventually(func() bool { // the feed brings a mitra that raw SQL made
		return r.ask(asMitra(id), "GET", "/api/v1/mitra/status", "").code == http.StatusOK
	}, "the mitra is known")
	r.plays("204 {A} POST /mitra/online")
	before := status().get("last_heartbeat_at")
	r.eventually(func() bool {
		r.plays("204 {A} POST /mitra/heartbeat {}")
		return status().get("last_heartbeat_at") != before
	}, "a heartbeat is kept")
	require.Equal(t, id, status().get("id"))
	require.Equal(t, true, status().get("is_online"))
	require.Equal(t, true, status().get("reachable"))
	require.EqualValues(t, 30, status().get("heartbeat_cadence_seconds"))
	require.Equal(t, "0", status().header.Get("Age"))
	require.True(t, one[bool](r, "SELECT is_online FROM mitra_online_status WHERE mitra_id = $1", id))
	r.plays(`
		204 {A} POST /mitra/offline
		409 {A} POST /mitra/heartbeat -> not-online: go online again
		404 {nobody} POST /mitra/online -> not-found
		404 {nobody} POST /mitra/offline
		404 {nobody} GET /mitra/status`)
	require.Equal(t, false, status().get("reachable"))
}

func TestADeactivatedMitraIsRefusedAndSignedOut(t *testing.T) {
	r := newRig(t)
	id := r.onlineMitra("a")
	r.session("s")
	r.exec("INSERT INTO auth_sessions (mitra_id) VALUES ($1)", id)
	gone := r.plays(`200 admin PUT /mitras/{A} {"is_active": false}`)
	require.Equal(t, false, gone.get("is_active"))
	require.Equal(t, id, gone.get("id"))
	require.Equal(t, 0, one[int](r, "SELECT count(*) FROM auth_sessions WHERE revoked_at IS NULL"))
	r.plays(`
		403 {a} POST /mitra/heartbeat -> deactivated
		403 {a} POST /mitra/online -> deactivated
		409 service POST /sessions/{s}/accept {"mitra_id": "{a}"} -> inactive
		200 admin PUT /mitras/{A} {"is_active": true}
		204 {a} POST /mitra/heartbeat
		404 admin PUT /mitras/{nobody} {"is_active": true} -> not-found`)
}

func TestASessionIsAcceptedReroutedAndEnded(t *testing.T) {
	r := newRig(t)
	r.onlineMitra("a")
	r.onlineMitra("b")
	for _, name := range []string{"s", "busy", "searching"} {
		r.session(name)
	}
	r.plays(`
		200 admin PUT /config/max_customers_per_mitra {"value": 1}
		200 service POST /sessions/{S}/accept {"mitra_id": "{A}"} -> {"id": "{s}", "mitra_id": "{a}", "status": "active"}
		200 service POST /sessions/{S}/accept {"mitra_id": "{A}"} -> {"id": "{s}", "mitra_id": "{a}", "status": "active"}
		409 service POST /sessions/{S}/accept {"mitra_id": "{b}"} -> taken
		409 service POST /sessions/{busy}/accept {"mitra_id": "{a}"} -> full
		200 service POST /sessions/{S}/reroute {"mitra_id": "{b}"}
		200 service POST /sessions/{busy}/accept {"mitra_id": "{a}"}
		409 service POST /sessions/{busy}/reroute {"mitra_id": "{b}"} -> full
		200 service POST /sessions/{S}/end {"status": "completed"} -> {"id": "{s}", "mitra_id": "{b}", "status": "completed"}
		409 service POST /sessions/{S}/reroute {"mitra_id": "{a}"} -> taken
		200 service POST /sessions/{busy}/end {"status": "expired"}
		409 service POST /sessions/{searching}/end {"status": "cancelled"} -> taken
		404 service POST /sessions/{nobody}/accept {"mitra_id": "{a}"} -> not-found
		404 service POST /sessions/{nobody}/reroute {"mitra_id": "{a}"} -> not-found
		404 service POST /sessions/{nobody}/end {"status": "expired"}`)
}

func TestASessionWaitsForAPaymentAndKeepsItsPlace(t *testing.T) {
	r := newRig(t)
	id := r.onlineMitra("a")
	r.session("s")
	r.plays(`
		409 service POST /sessions/{s}/extend {"paid": false} -> taken
		200 service POST /sessions/{s}/accept {"mitra_id": "{a}"}
		404 service POST /sessions/{nobody}/extend {"paid": true}`)
	for _, step := range []struct{ paid, status string }{
		{"false", "pending_payment"}, {"false", "pending_payment"}, {"true", "active"},
	} {
		r.plays(`200 service POST /sessions/{s}/extend {"paid": ` + step.paid +
			`} -> {"id": "{s}", "mitra_id": "{a}", "status": "` + step.status + `"}`)
		require.Equal(t, "1", r.rdb.Get(t.Context(), r.prefix+"mitra:capacity:"+id).Val())
	}
}

func TestASessionEndsByTheWordsOfTheConfigurationOrIsRefused(t *testing.T) {
	r := newRig(t)
	r.onlineMitra("a")
	ended := func(word, want string) {
		session := "/sessions/" + r.session("s")
		r.plays("200 service POST " + session + `/accept {"mitra_id": "{a}"}`)
		code, problem, _ := strings.Cut(want, " ")
		r.plays(code + " service POST " + session + `/end {"status": "` + word + `"}` + problem)
		r.exec("UPDATE chat_sessions SET status = 'expired' WHERE status = 'active'")
	}
	for _, word := range []string{"ended", "completed", "cancelled", "expired"} {
		ended(word, "200")
	}
	require.Equal(t, 4, one[int](r, "SELECT count(DISTINCT status) FROM chat_sessions"))
	for _, word := range []string{"done", "Ended", "searching", "active", ""} {
		ended(word, "400  -> bad-request: cancelled, completed, ended, expired")
	}
	// The table has the plan's words alone.
	r.exec(`ALTER TABLE chat_sessions ADD CHECK (status <> 'completed')  NOT VALID`)
	ended("completed", "400  -> bad-request: does not take it")
}

func TestAnyServiceIsToldWhetherAMitraIsReachable(t *testing.T) {
	r := newRig(t)
	r.onlineMitra("on")
	r.onlineMitra("gone")
	r.mitra("never")
	r.plays(`
		200 admin PUT /mitras/{gone} {"is_active": false}
		200 service GET /mitras/{on}/reachable -> {"id": "{on}", "reachable": true}
		200 service GET /mitras/{ON}/reachable -> {"id": "{on}", "reachable": true}
		200 service GET /mitras/{gone}/reachable -> {"id": "{gone}", "reachable": false}
		200 service GET /mitras/{never}/reachable -> {"id": "{never}", "reachable": false}
		200 service GET /mitras/{nobody}/reachable -> {"id": "{nobody}", "reachable": false}
		200 admin GET /online -> {"count": 1}`)
	require.NotEmpty(t, r.plays("200 service GET /mitras/{on}/reachable").source())
}

func TestTheStatusOfAMitraHasWhenItWentOnlineAndOfflineLast(t *testing.T) {
	r := newRig(t)
	r.onlineMitra("a")
	status := func() answer { return r.plays("200 {a} GET /mitra/status") }
	require.Equal(t, "valkey", status().source())
	require.NotNil(t, status().get("last_online_at"))
	require.Nil(t, status().get("last_offline_at"))
	r.plays("204 {a} POST /mitra/offline")
	r.exec("UPDATE mitra_online_status SET is_online = is_online, last_online_at = '2026-01-02 03:04:05+00', last_offline_at = 'infinity'")
	r.eventually(func() bool { return status().get("last_online_at") == "2026-01-02T03:04:05Z" }, "the feed brings its version")
	require.Nil(t, status().get("last_offline_at"), "no moment")
	r.onlineMitra("b")
	r.exec("ALTER TABLE mitras RENAME TO away")
	unknown := r.plays("200 {b} GET /mitra/status")
	require.Equal(t, true, unknown.get("is_online"))
	require.NotContains(t, string(unknown.body), "last_online_at", "what is not known is not said to be never")
}

func TestAvailableIsWhoCanTakeWorkTheLeastBusyFirst(t *testing.T) {
	r := newRig(t)
	r.plays(`
		200 service GET /available -> []
		200 customer GET /availability -> {"available": false, "count": 0}`)
	r.onlineMitra("busy")
	r.onlineMitra("idle")
	r.session("s")
	r.plays(`
		200 service POST /sessions/{s}/accept {"mitra_id": "{busy}"}
		200 service GET /available -> [{"id": "{idle}", "active_session_count": 0}, {"id": "{busy}", "active_session_count": 1}]
		200 service GET /available?limit=1 -> [{"id": "{idle}", "active_session_count": 0}]
		200 admin PUT /config/max_customers_per_mitra {"value": 2}`)
	// A changed setting drops the snapshot.
	for _, as := range []string{"customer", "service", "admin", "{busy}"} {
		r.plays("200 " + as + ` GET /availability -> {"available": true, "count": 2}`)
	}
}

func TestAnAdministratorListsMitrasPageByPage(t *testing.T) {
	r := newRig(t)
	r.exec("INSERT INTO mitras (id) SELECT gen_random_uuid() FROM generate_series(1, 1500)")
	online := map[string]bool{}
	for range 3 {
		online[r.onlineMitra("another")] = true
	}
	found := map[string]bool{}
	for after := ""; ; {
		page := r.plays("200 admin GET /mitras?online=true&limit=2" + after)
		require.Equal(t, "postgres", page.source())
		for _, m := range page.get("mitras").([]any) {
			found[m.(map[string]any)["id"].(string)] = true
		}
		next, more := page.get("next").(string)
		if !more {
			break
		}
		after = "&after=" + next
	}
	require.Equal(t, online, found)
	all := r.plays("200 admin GET /mitras")
	require.Len(t, all.get("mitras"), 100)
	require.NotEmpty(t, all.get("next"))
	require.Len(t, r.plays("200 admin GET /mitras?online=false&limit=1000").get("mitras"), 1000)
}

func TestAnAdministratorListsMitrasByTheirNames(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"Citra", "Ann", "Budi", "Ann"} {
		r.exec("INSERT INTO mitras (display_name) VALUES ($1)", name)
	}
	r.exec("INSERT INTO mitras DEFAULT VALUES")
	r.exec("INSERT INTO mitra_online_status (mitra_id, is_online, last_online_at) SELECT id, true, '2026-01-02 00:00+00' FROM mitras WHERE display_name = 'Budi'")
	var names []any
	var last string
	for after := ""; ; {
		page := r.plays("200 admin GET /mitras?sort=display_name&limit=2" + after)
		for _, m := range page.get("mitras").([]any) {
			names = append(names, m.(map[string]any)["display_name"])
		}
		next, more := page.get("next").(string)
		if !more {
			break
		}
		last, after = next, "&after="+next
	}
	require.Equal(t, []any{nil, "Ann", "Ann", "Budi", "Citra"}, names)
	on := r.plays("200 admin GET /mitras?online=true&sort=display_name")
	require.Len(t, on.get("mitras"), 1)
	budi := on.get("mitras").([]any)[0].(map[string]any)
	require.Equal(t, "Budi", budi["display_name"])
	require.Equal(t, "2026-01-02T00:00:00Z", budi["last_online_at"])
	r.exec("DELETE FROM mitras WHERE id = $1", last)
	r.plays("404 admin GET /mitras?sort=display_name&after=" + last + " -> not-found")
	r.plays("200 admin GET /mitras?after=" + last)
}

func TestAnAdministratorChangesSettings(t *testing.T) {
	newRig(t).plays(`
		200 admin GET /config -> {"max_customers_per_mitra": 3, "stale_after_seconds": 120, "require_ping": true, "heartbeat_cadence_seconds": 30}
		200 admin PUT /config/stale_after_seconds {"value": 90}
		200 admin PUT /config/require_ping {"value": false}
		400 admin PUT /config/stale_after_seconds {"value": 0} -> bad-setting: from 1
		400 admin PUT /config/require_ping {"value": 1} -> bad-setting: from 1
		400 admin PUT /config/max_customers_per_mitra {"value": "3"} -> bad-setting: from 1
		400 admin PUT /config/heartbeat_cadence_seconds {"value": null} -> bad-setting: from 1
		400 admin PUT /config/max_customers {"value": 3} -> bad-setting: from 1
		400 admin PUT /config/a'%20OR%201=1 {"value": 3} -> bad-setting: from 1
		400 admin PUT /config/require_ping {} -> bad-request: value
		200 admin GET /config -> {"max_customers_per_mitra": 3, "stale_after_seconds": 90, "require_ping": false, "heartbeat_cadence_seconds": 30}`)
}

func TestASettingChangedBySQLAppliesWhenItIsAnnounced(t *testing.T) {
	r := newRig(t)
	r.exec("UPDATE app_config SET value = '0' WHERE key = 'max_customers_per_mitra'")
	require.NoError(t, r.rdb.Publish(t.Context(), r.prefix+"config:invalidate", "max_customers_per_mitra").Err())
	r.eventually(func() bool {
		return r.plays("200 admin GET /config").get("max_customers_per_mitra") == 0.0
	}, "the setting applies")
}

func TestTheDocumentHasEveryRouteAndNoOther(t *testing.T) {
	t.Parallel()
	doc := readDocument(t, api.Description())
	require.ElementsMatch(t, api.Routes(), doc.routes())
	page, err := os.ReadFile("../../../../docs/reference/availability-http.md")
	require.NoError(t, err)
	var types []any
	for _, name := range api.Problems() {
		types = append(types, "https://github.com/rollcall-redis/rollcall/blob/main/docs/reference/availability-http.md#"+name)
		require.Contains(t, string(page), "\n### "+name+"\n", "docs/reference/availability-http.md has no heading for a problem")
	}
	require.ElementsMatch(t, types, doc.problems())
}

func TestTheDocumentIsServedToEverybody(t *testing.T) {
	r := newRig(t)
	got := r.ask("", "GET", "/openapi.yaml", "").is(http.StatusOK)
	require.Equal(t, string(api.Description()), string(got.body))
}
