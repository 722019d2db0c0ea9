package metricspage

// meaning is what an operator has to know about a metric and the code does not contain.
type meaning struct{ normal, otherwise string }

var meanings = map[string]meaning{
	"settings_file_taken_timestamp_seconds": {"At the start, or when the file last changed",
		"Older than the file: not seen yet, or `settings_file_failing` is 1. " +
			"[Rotate a password](../operate.md#rotate-a-password)"},
	"settings_file_failing": {"0", "1: [the file fails](../runbook.md#rollcallfilefailing)"},

	"janitor_leader": {"1 on one replica, 0 on the others",
		"Sum 0: [nobody leads](../runbook.md#rollcallnobodyleads). " +
			"Sum 2 for more than a scrape: [two leaders](../runbook.md#rollcalltwoleaders)"},
	"janitor_lease_epoch": {"Rises with each term: about its beginning, in unix µs",
		"Others may show an older one for a while: take the maximum"},
	"janitor_lease_transitions_total": {"Rarely grows: restarts, resigning",
		"`lost` grows: [the lease flaps](../runbook.md#rollcallleaseflaps)"},
	"teltonika_registry_janitor_evicted_total": {"Grows when a replica dies without a goodbye",
		"A series begins with its first count, which `increase()` misses"},
	"janitor_spared_total": {"`alive`, `reowned`: a little around restarts and moves",
		"`fenced`: a leader was late, nothing was deleted. `held`: a hold began in the middle of a pass. " +
			"`unreadable` grows with each pass: [unreadable](../runbook.md#unreadable)"},
	"janitor_pass_duration_seconds": {"`owners`: milliseconds. `registry`, full scans alone: grows with the registry",
		"Near `JANITOR_INTERVAL`: raise the interval or the share"},
	"janitor_passes_total": {"`done` grows: `owners` each second, `registry` each interval",
		"`held`: [a hold](../runbook.md#hold-reasons). `failed`: [passes fail](../runbook.md#rollcallpassesfail). " +
			"`lost`: a term ended in the middle of a pass"},
	"janitor_last_success_timestamp_seconds": {"On the leader: at most one interval ago",
		"A former leader's does not change; missing until the first success"},
	"janitor_owners_died_total": {"Constant",
		"[An owner died](../runbook.md#rollcallownerdied). A new leader counts those that the timeline lacks"},
	"janitor_evicted_total": {"Grows after a replica died without a goodbye",
		"[Many entries were evicted](../runbook.md#rollcallevictsmany). From 0, for `increase()`"},
	"janitor_doubted_owners": {"0", "[Doubted owners](../runbook.md#doubted-owners): a doubt ends by itself"},
	"janitor_redis_full": {"0",
		"1: [Redis is full](../runbook.md#rollcallredisfull). A replica that does not tick has 0: take the maximum"},
	"janitor_dry_run":    {"0", "1 for an hour: [a forgotten dry run](../runbook.md#rollcalldryrun)"},
	"janitor_held_total": {"Constant; a few of `gap` after the first start", "[Hold reasons](../runbook.md#hold-reasons)"},
	"janitor_scanned_total": {"`registry`: grows by its size with each [full scan](../timings.md#when-a-full-scan-runs)",
		"`owners` is constant on the leader: no pass runs"},
	"janitor_full_scans_total": {"`interval` grows",
		"Another [reason](../timings.md#when-a-full-scan-runs) grows each interval: scans have something to find"},
	"janitor_full_scan_due_timestamp_seconds": {"On the leader: at most 15 minutes or a `JANITOR_INTERVAL` ahead",
		"Past: a pass is under way, is held or fails. 0: no leader, or no full scan in its term yet"},
	"janitor_pass_progress_ratio": {"0 between passes, 0 to 1 in one", "Constant in one: see `janitor_redis_share`"},
	"janitor_redis_share": {"`JANITOR_REDIS_SHARE` on the leader, 0 elsewhere",
		"Less on the leader: [sweeping is slow](../operate.md#sweeping-is-slow)"},
	"janitor_throttled_seconds_total": {"Constant", "[Sweeping is slow](../operate.md#sweeping-is-slow), by reason"},
	"janitor_witness_seconds": {"Rises without end",
		"Near 0 on all: a hold began. On one that does not lead perhaps not known: take the maximum"},

	"teltonika_registry_failures_total": {"0",
		"`heartbeat`: Redis is away, or refuses. `register`: not at the first try; served, and healed later. " +
			"`release`, `heal`, `check`, `compare`: tried again. `listen`: its channel does not arrive; it " +
			"subscribes anew. `lookup`: the caller got the error"},
	"teltonika_registry_held": {"The devices that are connected here",
		"Far below `ingest_connections`: sockets without an IMEI"},
	"teltonika_registry_contested_total": {"0, or few", "Two clients take one id from each other: one does not stop at `moved`"},
	"teltonika_registry_healed_total":    {"0", "[Owners heal](../runbook.md#rollcallheals)"},

	"ingest_certificate_ends_seconds": {"Months ahead",
		"Within 14 days: [it ends](../runbook.md#rollcallcertificateends). Absent without TLS"},
	"ingest_connections": {"The number of devices, and a few more",
		"At `ingest_connections_limit`: devices wait. If `ingest_unproven` and `ingest_largest_network` are " +
			"small, add replicas"},
	"ingest_connections_limit": {"`INGEST_MAX_CONNS`", "Less: the limit of open files allows no more"},
	"ingest_unidentified": {"Near 0, except in a reconnect storm",
		"Near a quarter of `INGEST_MAX_CONNS`, or 4,096: [flooded](../runbook.md#rollcallflooded)"},
	"ingest_unproven": {"Near 0, except in a reconnect storm",
		"Near `ingest_connections`: [flooded](../runbook.md#rollcallflooded) with invented IMEIs"},
	"ingest_largest_network": {"What your largest operator has behind one network",
		"Near `ingest_connections_limit`, and not that: [crowded](../runbook.md#rollcallcrowded)"},
	"ingest_registrations": {"Near 0", "At 4,096 for long: Redis is away, and devices wait for their answer"},
	"ingest_handshakes_total": {"`accepted`",
		"`refused`: not a tracker, or a wrong certificate. `incomplete`: gone or too slow. `unknown_device`: " +
			"not in `devices:allowed`. `undecided`: Redis did not answer in time"},
	"ingest_authority_failures_total": {"0", "[Authority unknown](../runbook.md#rollcallauthorityunknown)"},
	"ingest_imei_luhn_failures_total": {"Few", "Many: devices with invented IMEIs"},
	"ingest_frames_total": {"`acknowledged`",
		"`failed`: Redis did not take it in time; it is sent again. `dead`: kept as a dead letter. `repeated`: " +
			"one of these came again, and was acknowledged. `rejected`: framing or checksum, without a codec. " +
			"`unanswered`: stored, but the device was gone; it may be stored twice. `abandoned`: its socket ended " +
			"while it waited because the device sends too much. `command`: a frame without telemetry"},
	"ingest_records_total": {"Grows", "Constant while there are connections: see `ingest_frames_total`"},
	"ingest_disconnects_total": {"`closed`, `network`, `idle`, `moved` (it has a newer socket), `draining`",
		"`store`: Redis did not take records in time. `refused`, `incomplete`, `framing`, `unknown`: what the " +
			"device sent. `tls`, `proxy`: no handshake, no header. `certificate`: not [its " +
			"own](../devices.md#device-certificates). `untrusted`: not from `INGEST_PROXY_TRUSTED`. " +
			"`unknown_device`, `undecided`: [not served](../devices.md#which-devices-are-served). `crowded`: [made " +
			"room](../devices.md#who-goes-when-there-is-no-room). `unproven`: no frame within `INGEST_FIRST_FRAME`"},
	"ingest_bytes_total":        {"About 65 to 120 bytes a record", "Much `in` and few records: it is not telemetry"},
	"ingest_dead_letters_total": {"0", "[Dead letters](../runbook.md#rollcalldeadletters)"},
	"ingest_slowed_frames_total": {"0; grows while backlogs come in on fast networks",
		"Grows without an end: [a device sends too much](../devices.md#how-much-may-a-device-send). `XREVRANGE " +
			"telemetry:teltonika + - COUNT 1000` shows whose records they are"},
	"ingest_stray_responses_total": {"0, or grows with the commands",
		"Many: later answers are [ambiguous](../devices.md#ambiguous-answers); ask in codec 14"},
	"ingest_messages_total": {"`stored` grows where devices have serial ports",
		"`lost`: Redis was away for longer than [messages wait](telemetry.md#messages)"},
	"ingest_messages_waiting": {"0, or a few for a moment", "Grows: Redis is away"},
	"ingest_acknowledgement_seconds": {"Milliseconds: this is Redis' time",
		"Above 1 s: Redis is slow, or a backlog comes in. None is above 10 s: that is `failed`"},
	"ingest_commands_total": {"`answered`",
		"By [status](../devices.md#statuses). Without an outcome: `queued` (waits in the queue), `duplicate` (id " +
			"used before), `unusable` (no id). Those of dead instances: the eviction log"},
	"ingest_commands_outstanding": {"Few",
		"From 5,000 on one for each device; at 10,000 further ones are `busy`: devices that take none, long `expires`"},
	"ingest_commands_waiting": {"As many as your backend queues", "Near 10,000: further ones are `busy`"},

	"orphan_removed_total": {"Grows as your application leaks",
		"Jumps: what did the application forget to delete? `rollcall log` has the names"},
	"orphan_kept_total": {"`alive`, `young`",
		"`unreadable`, `unknown`: `cleanup why KEY` names what is unknown. `foreign`: names that `only` leaves " +
			"alone. `large`: it needs a `bin`. `waiting`: its grace is not over. `marks`, `cap`: more are condemned " +
			"than a pass takes. `changed`: between two looks"},
	"orphan_held_total": {"Constant", "[Why a rule is held](../runbook.md#why-a-rule-is-held)"},
	"orphan_condemned":  {"Near 0", "Stays high: the rule only reports, is held, or `cap` is small: `cleanup plan`"},
	"orphan_last_success_timestamp_seconds": {"On the leader: at most one `CLEANUP_INTERVAL` ago",
		"Older: the rule is held or fails. Missing until the first success"},
	"cleanup_cycle_duration_seconds": {"Well below 10 s", "[Cycles are slow](../runbook.md#cleanupcycleslow)"},
	"cleanup_cycles_total": {"One more each `CLEANUP_INTERVAL`, on the leader",
		"Constant on all: [nothing is cleaned up](../runbook.md#cleanupnotrunning)"},
	"cleanup_keys_removed_total": {"Grows as your application leaks",
		"1,000 in five minutes: [much is removed](../runbook.md#cleanupremovesmuch)"},
	"cleanup_orphans_removed_total":        {"The same, without related keys", "Far fewer: each orphan takes many keys along"},
	"cleanup_last_cycle_timestamp_seconds": {"On the leader: at most one `CLEANUP_INTERVAL` ago", "Missing until the first cycle"},

	"availability_apply_failed_total": {"Constant", "[Applies fail](../runbook.md#availabilityappliesfail)"},
	"availability_auto_offline_total": {"Grows when apps die without a word",
		"[Many go offline](../runbook.md#availabilitymanygooffline)"},
	"availability_bad_keys_total": {"Constant", "[Somebody else writes the keys](../runbook.md#availabilitybadkeys)"},
	"availability_drift_total":    {"Constant", "[Drift](../runbook.md#availabilitydrift), by kind"},
	"availability_fed_total":      {"Grows with changes by raw SQL", "With each change: applies are lost"},
	"availability_heartbeats_mirrored_total": {"Grows on the leader",
		"Constant on all: [not stored](../runbook.md#availabilityheartbeatsnotstored)"},
	"availability_heartbeats_total": {"`kept`",
		"`not_online`: apps that were set offline. `deactivated`: refused. `unseeded`: the mirror is not whole. " +
			"`error`: Redis is away"},
	"availability_feed_behind_seconds": {"0", "The feed cannot be read or brought: `mirror.feed_error`"},
	"availability_mirror_whole":        {"1", "0: [not whole](../runbook.md#availabilitymirrornotwhole)"},
	"availability_reads_total":         {"From Redis", "From the source or old: Redis is away, or the mirror is not whole"},
	"availability_seeds_total":         {"1 after a start", "Grows: [reseeds](../runbook.md#availabilityreseeds)"},
	"availability_snapshots_total":     {"About six a minute in the fleet", "More: the cached answer is lost again and again"},
	"availability_mitras_online":       {"Follows the day", "0 by day: apps cannot reach the service, or cannot go online"},
	"availability_mitras_available":    {"Follows the day", "0: all are busy, silent or offline"},
	"availability_http_request_seconds": {"Milliseconds. 2xx; 409 of heartbeats after an auto-offline",
		"`503`: neither Redis nor Postgres can answer. Many `401`: the secret or the keys have changed"},
	"availability_postgres_answers":            {"1", "0: [Postgres is away](../runbook.md#availabilitypostgresaway)"},
	"availability_postgres_connections":        {"A few", "The most: see waits"},
	"availability_postgres_connections_busy":   {"0 or 1", "Near the most for long: Postgres is slow, or `pool_max_conns` is small"},
	"availability_postgres_connections_most":   {"`pool_max_conns` of `DATABASE_URL`", ""},
	"availability_postgres_waits_total":        {"Constant", "Grows: raise `pool_max_conns`, or find out why Postgres is slow"},
	"availability_postgres_wait_seconds_total": {"Constant", "Divided by the waits: how long a request waits"},
}
