package api_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/availability/internal/api"
)

func TestAMitraGoesOnlineBeatsAndGoesOffline(t *testing.T) {
	r := newRig(t)
	id := r.mitra()
	as := asMitra(strings.ToUpper(id)) // what it names is taken in lower case
	r.ask(as, "POST", "/api/v1/mitra/heartbeat", "").is(http.StatusConflict).problem("not-online")
	r.eventually(func() bool { // the feed brings a mitra that raw SQL made
		return r.ask(as, "GET", "/api/v1/mitra/status", "").code == http.StatusOK
	}, "the mitra is known")
	r.ask(as, "POST", "/api/v1/mitra/online", "").is(http.StatusNoContent)
	before := r.ask(as, "GET", "/api/v1/mitra/status", "").is(http.StatusOK).get("last_heartbeat_at")
	r.eventually(func() bool {
		r.ask(as, "POST", "/api/v1/mitra/heartbeat", "{}").is(http.StatusNoContent)
		return r.ask(as, "GET", "/api/v1/mitra/status", "").get("last_heartbeat_at") != before
	}, "a heartbeat is kept")
	status := r.ask(as, "GET", "/api/v1/mitra/status", "").is(http.StatusOK)
	require.Equal(t, id, status.get("id"))
	require.Equal(t, true, status.get("is_online"))
	require.Equal(t, true, status.get("reachable"))
	require.EqualValues(t, 30, status.get("heartbeat_cadence_seconds"))
	require.Equal(t, "0", status.header.Get("Age"))
	require.True(t, one[bool](r, "SELECT is_online FROM mitra_online_status WHERE mitra_id = $1", id))

	r.ask(as, "POST", "/api/v1/mitra/offline", "").is(http.StatusNoContent)
	r.ask(as, "POST", "/api/v1/mitra/heartbeat", "").is(http.StatusConflict).problem("not-online", "go online again")
	require.Equal(t, false, r.ask(as, "GET", "/api/v1/mitra/status", "").get("reachable"))
	unknown := asMitra(nobody)
	r.ask(unknown, "POST", "/api/v1/mitra/online", "").is(http.StatusNotFound).problem("not-found")
	r.ask(unknown, "POST", "/api/v1/mitra/offline", "").is(http.StatusNotFound)
	r.ask(unknown, "GET", "/api/v1/mitra/status", "").is(http.StatusNotFound)
}

func TestADeactivatedMitraIsRefusedAndSignedOut(t *testing.T) {
	r := newRig(t)
	id := r.onlineMitra()
	r.exec("INSERT INTO auth_sessions (mitra_id) VALUES ($1)", id)
	path := "/api/v1/mitras/" + strings.ToUpper(id)
	gone := r.ask(asAdmin, "PUT", path, `{"is_active": false}`).is(http.StatusOK)
	require.Equal(t, false, gone.get("is_active"))
	require.Equal(t, id, gone.get("id"))
	for _, what := range []string{"heartbeat", "online"} {
		r.ask(asMitra(id), "POST", "/api/v1/mitra/"+what, "").is(http.StatusForbidden).problem("deactivated")
	}
	require.Equal(t, 0, one[int](r, "SELECT count(*) FROM auth_sessions WHERE revoked_at IS NULL"))
	s := r.session()
	r.ask(asService, "POST", "/api/v1/sessions/"+s+"/accept", `{"mitra_id": "`+id+`"}`).
		is(http.StatusConflict).problem("inactive")
	r.ask(asAdmin, "PUT", path, `{"is_active": true}`).is(http.StatusOK)
	r.ask(asMitra(id), "POST", "/api/v1/mitra/heartbeat", "").is(http.StatusNoContent)
	r.ask(asAdmin, "PUT", "/api/v1/mitras/"+nobody, `{"is_active": true}`).is(http.StatusNotFound).problem("not-found")
}

func TestASessionIsAcceptedReroutedAndEnded(t *testing.T) {
	r := newRig(t)
	one, other := r.onlineMitra(), r.onlineMitra()
	body := func(id string) string { return `{"mitra_id": "` + id + `"}` }
	r.ask(asAdmin, "PUT", "/api/v1/config/max_customers_per_mitra", `{"value": 1}`).is(http.StatusOK)
	s := r.session()
	at := "/api/v1/sessions/" + strings.ToUpper(s)
	for range 2 { // to repeat it does no harm
		r.ask(asService, "POST", at+"/accept", body(strings.ToUpper(one))).is(http.StatusOK).
			says(`{"id": "` + s + `", "mitra_id": "` + one + `", "status": "active"}`)
	}
	r.ask(asService, "POST", at+"/accept", body(other)).is(http.StatusConflict).problem("taken")
	busy := "/api/v1/sessions/" + r.session()
	r.ask(asService, "POST", busy+"/accept", body(one)).is(http.StatusConflict).problem("full")
	r.ask(asService, "POST", at+"/reroute", body(other)).is(http.StatusOK)
	r.ask(asService, "POST", busy+"/accept", body(one)).is(http.StatusOK)
	r.ask(asService, "POST", busy+"/reroute", body(other)).is(http.StatusConflict).problem("full")
	r.ask(asService, "POST", at+"/end", `{"status": "completed"}`).is(http.StatusOK).
		says(`{"id": "` + s + `", "mitra_id": "` + other + `", "status": "completed"}`)
	r.ask(asService, "POST", at+"/reroute", body(one)).is(http.StatusConflict).problem("taken")
	r.ask(asService, "POST", busy+"/end", `{"status": "expired"}`).is(http.StatusOK)
	searching := "/api/v1/sessions/" + r.session()
	r.ask(asService, "POST", searching+"/end", `{"status": "cancelled"}`).is(http.StatusConflict).problem("taken")
	for _, what := range []string{"accept", "reroute"} {
		r.ask(asService, "POST", "/api/v1/sessions/"+nobody+"/"+what, body(one)).is(http.StatusNotFound).problem("not-found")
	}
	r.ask(asService, "POST", "/api/v1/sessions/"+nobody+"/end", `{"status": "expired"}`).is(http.StatusNotFound)
}

func TestASessionWaitsForAPaymentAndKeepsItsPlace(t *testing.T) {
	r := newRig(t)
	id := r.onlineMitra()
	s := r.session()
	at := "/api/v1/sessions/" + s
	r.ask(asService, "POST", at+"/extend", `{"paid": false}`).is(http.StatusConflict).problem("taken")
	r.ask(asService, "POST", at+"/accept", `{"mitra_id": "`+id+`"}`).is(http.StatusOK)
	for _, step := range []struct{ body, status string }{
		{`{"paid": false}`, "pending_payment"}, {`{"paid": false}`, "pending_payment"}, {`{"paid": true}`, "active"},
	} {
		r.ask(asService, "POST", at+"/extend", step.body).is(http.StatusOK).
			says(`{"id": "` + s + `", "mitra_id": "` + id + `", "status": "` + step.status + `"}`)
		require.Equal(t, "1", r.rdb.Get(t.Context(), r.prefix+"mitra:capacity:"+id).Val())
	}
	r.ask(asService, "POST", "/api/v1/sessions/"+nobody+"/extend", `{"paid": true}`).is(http.StatusNotFound)
}

func TestASessionEndsByTheWordsOfTheConfigurationOrIsRefused(t *testing.T) {
	r := newRig(t)
	id := r.onlineMitra()
	ended := func(word string) answer {
		at := "/api/v1/sessions/" + r.session()
		r.ask(asService, "POST", at+"/accept", `{"mitra_id": "`+id+`"}`).is(http.StatusOK)
		a := r.ask(asService, "POST", at+"/end", `{"status": "`+word+`"}`)
		r.exec("UPDATE chat_sessions SET status = 'expired' WHERE status = 'active'")
		return a
	}
	for _, word := range []string{"ended", "completed", "cancelled", "expired"} {
		require.Equal(t, word, ended(word).is(http.StatusOK).get("status"))
	}
	for _, word := range []string{"done", "Ended", "searching", "active", ""} {
		ended(word).is(http.StatusBadRequest).problem("bad-request", "cancelled, completed, ended, expired")
	}
	// The table has the plan's words alone.
	r.exec(`ALTER TABLE chat_sessions ADD CHECK (status <> 'completed')  NOT VALID`)
	ended("completed").is(http.StatusBadRequest).problem("bad-request", "does not take it")
}

func TestAnyServiceIsToldWhetherAMitraIsReachable(t *testing.T) {
	r := newRig(t)
	on, gone := r.onlineMitra(), r.onlineMitra()
	r.ask(asAdmin, "PUT", "/api/v1/mitras/"+gone, `{"is_active": false}`).is(http.StatusOK)
	for id, want := range map[string]bool{on: true, strings.ToUpper(on): true, gone: false, r.mitra(): false, nobody: false} {
		got := r.ask(asService, "GET", "/api/v1/mitras/"+id+"/reachable", "").is(http.StatusOK)
		require.Equal(t, want, got.get("reachable"), id)
		require.Equal(t, strings.ToLower(id), got.get("id"))
		require.NotEmpty(t, got.source())
	}
	r.ask(asAdmin, "GET", "/api/v1/online", "").is(http.StatusOK).says(`{"count": 1}`)
}

func TestTheStatusOfAMitraHasWhenItWentOnlineAndOfflineLast(t *testing.T) {
	r := newRig(t)
	id := r.onlineMitra()
	status := func() answer { return r.ask(asMitra(id), "GET", "/api/v1/mitra/status", "").is(http.StatusOK) }
	require.Equal(t, "valkey", status().source())
	require.NotNil(t, status().get("last_online_at"))
	require.Nil(t, status().get("last_offline_at"))
	r.ask(asMitra(id), "POST", "/api/v1/mitra/offline", "").is(http.StatusNoContent)
	r.exec("UPDATE mitra_online_status SET is_online = is_online, last_online_at = '2026-01-02 03:04:05+00', last_offline_at = 'infinity'")
	r.eventually(func() bool { return status().get("last_online_at") == "2026-01-02T03:04:05Z" }, "the feed brings its version")
	require.Nil(t, status().get("last_offline_at"), "no moment")
	id = r.onlineMitra()
	r.exec("ALTER TABLE mitras RENAME TO away")
	require.Contains(t, string(status().body), `"is_online":true`)
	require.NotContains(t, string(status().body), "last_online_at", "what is not known is not said to be never")
}

func TestAvailableIsWhoCanTakeWorkTheLeastBusyFirst(t *testing.T) {
	r := newRig(t)
	r.ask(asService, "GET", "/api/v1/available", "").is(http.StatusOK).says(`[]`)
	r.ask(asCustomer, "GET", "/api/v1/availability", "").is(http.StatusOK).says(`{"available": false, "count": 0}`)
	busy, idle := r.onlineMitra(), r.onlineMitra()
	r.ask(asService, "POST", "/api/v1/sessions/"+r.session()+"/accept", `{"mitra_id": "`+busy+`"}`).is(http.StatusOK)
	free := fmt.Sprintf(`{"id": %q, "active_session_count": 0}`, idle)
	r.ask(asService, "GET", "/api/v1/available", "").is(http.StatusOK).
		says(fmt.Sprintf(`[%s, {"id": %q, "active_session_count": 1}]`, free, busy))
	r.ask(asService, "GET", "/api/v1/available?limit=1", "").is(http.StatusOK).says(`[` + free + `]`)
	// A changed setting drops the snapshot.
	r.ask(asAdmin, "PUT", "/api/v1/config/max_customers_per_mitra", `{"value": 2}`).is(http.StatusOK)
	for _, as := range []string{asCustomer, asService, asAdmin, asMitra(busy)} {
		r.ask(as, "GET", "/api/v1/availability", "").is(http.StatusOK).says(`{"available": true, "count": 2}`)
	}
}

func TestAnAdministratorListsMitrasPageByPage(t *testing.T) {
	r := newRig(t)
	r.exec("INSERT INTO mitras (id) SELECT gen_random_uuid() FROM generate_series(1, 1500)")
	online := map[string]bool{}
	for range 3 {
		online[r.onlineMitra()] = true
	}
	found := map[string]bool{}
	for after := ""; ; {
		page := r.ask(asAdmin, "GET", "/api/v1/mitras?online=true&limit=2"+after, "").is(http.StatusOK)
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
	all := r.ask(asAdmin, "GET", "/api/v1/mitras", "").is(http.StatusOK)
	require.Len(t, all.get("mitras"), 100)
	require.NotEmpty(t, all.get("next"))
	off := r.ask(asAdmin, "GET", "/api/v1/mitras?online=false&limit=1000", "").is(http.StatusOK)
	require.Len(t, off.get("mitras"), 1000)
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
		page := r.ask(asAdmin, "GET", "/api/v1/mitras?sort=display_name&limit=2"+after, "").is(http.StatusOK)
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
	on := r.ask(asAdmin, "GET", "/api/v1/mitras?online=true&sort=display_name", "").is(http.StatusOK)
	require.Len(t, on.get("mitras"), 1)
	budi := on.get("mitras").([]any)[0].(map[string]any)
	require.Equal(t, "Budi", budi["display_name"])
	require.Equal(t, "2026-01-02T00:00:00Z", budi["last_online_at"])
	r.exec("DELETE FROM mitras WHERE id = $1", last)
	r.ask(asAdmin, "GET", "/api/v1/mitras?sort=display_name&after="+last, "").is(http.StatusNotFound).problem("not-found")
	r.ask(asAdmin, "GET", "/api/v1/mitras?after="+last, "").is(http.StatusOK)
}

func TestAnAdministratorChangesSettings(t *testing.T) {
	r := newRig(t)
	now := func() answer { return r.ask(asAdmin, "GET", "/api/v1/config", "").is(http.StatusOK) }
	now().says(`{"max_customers_per_mitra": 3, "stale_after_seconds": 120, "require_ping": true, "heartbeat_cadence_seconds": 30}`)
	r.ask(asAdmin, "PUT", "/api/v1/config/stale_after_seconds", `{"value": 90}`).is(http.StatusOK)
	r.ask(asAdmin, "PUT", "/api/v1/config/require_ping", `{"value": false}`).is(http.StatusOK)
	now().says(`{"max_customers_per_mitra": 3, "stale_after_seconds": 90, "require_ping": false, "heartbeat_cadence_seconds": 30}`)
	for path, body := range map[string]string{
		"stale_after_seconds": `{"value": 0}`, "require_ping": `{"value": 1}`, "max_customers_per_mitra": `{"value": "3"}`,
		"heartbeat_cadence_seconds": `{"value": null}`, "max_customers": `{"value": 3}`, "a'%20OR%201=1": `{"value": 3}`,
	} {
		r.ask(asAdmin, "PUT", "/api/v1/config/"+path, body).is(http.StatusBadRequest).problem("bad-setting",
			"from 1")
	}
	r.ask(asAdmin, "PUT", "/api/v1/config/require_ping", `{}`).is(http.StatusBadRequest).problem("bad-request", "value")
	require.EqualValues(t, 90, now().get("stale_after_seconds"))
}

func TestASettingChangedBySQLAppliesWhenItIsAnnounced(t *testing.T) {
	r := newRig(t)
	r.exec("UPDATE app_config SET value = '0' WHERE key = 'max_customers_per_mitra'")
	require.NoError(t, r.rdb.Publish(t.Context(), r.prefix+"config:invalidate", "max_customers_per_mitra").Err())
	r.eventually(func() bool {
		return r.ask(asAdmin, "GET", "/api/v1/config", "").get("max_customers_per_mitra") == 0.0
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
