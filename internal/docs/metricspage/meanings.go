package metricspage

// meaning is what an operator has to know about a metric and the code does not contain.
type meaning struct{ normal, otherwise string }

var meanings = map[string]meaning{
	"settings_file_taken_timestamp_seconds": {
		"When the process started, or the file last changed",
		"Older than the file: this process has not seen the change yet, or `settings_file_failing` is 1. See [how to rotate a password](../operate.md#rotate-a-password)",
	},
	"settings_file_failing": {
		"0",
		"1: the file cannot be read, is empty, makes no sense, or the server refuses its content. The log and `files` of the status have the reason. The former value is in use: a connection that breaks may not come back",
	},
	"janitor_leader": {
		"1 on one replica, 0 on the others",
		"Sum 0: [nobody leads](../runbook.md#rollcallnobodyleads). Sum 2 for more than a scrape: [two leaders](../runbook.md#rollcalltwoleaders)",
	},
	"janitor_lease_epoch": {
		"Rises with each term",
		"Other replicas may show an older one for a while: take the maximum. It is about the unix time in µs at which the term began",
	},
	"janitor_lease_transitions_total": {
		"Rarely grows. `acquired`, `released`: restarts, resigning",
		"`lost` grows: Redis hangs for longer than 9/10 of the lease TTL, or processes are paused: [the lease flaps](../runbook.md#rollcallleaseflaps)",
	},
	"teltonika_registry_janitor_evicted_total": {
		"Grows when a replica dies without a goodbye",
		"Counts what this process deleted. A series begins with its first count, so `increase()` misses that count. It ends when 1,000 more owners came after it",
	},
	"janitor_spared_total": {
		"`alive`, `reowned`: a little around restarts and moves",
		"`fenced`: a leader was late, nothing was deleted. `held`: a hold began in the middle of a pass. `unreadable` grows with each pass: [entries that cannot be judged](../runbook.md#unreadable)",
	},
	"janitor_pass_duration_seconds": {
		"`owners`: milliseconds. `registry`: of full scans alone; grows with the registry; the rest for `JANITOR_REDIS_SHARE` is in it",
		"Near `JANITOR_INTERVAL`: raise the interval or the share",
	},
	"janitor_passes_total": {
		"`done` grows: `owners` each second, `registry` each interval, also where no full scan was due",
		"`held`: [a hold](../runbook.md#hold-reasons). `failed`: see the log, `pass failed`. `lost`: a term ended in the middle of a pass",
	},
	"janitor_last_success_timestamp_seconds": {
		"On the leader: just now, or one interval ago",
		"It is per process: on a former leader it does not change. It is missing until the first success",
	},
	"janitor_owners_died_total": {
		"Constant",
		"[An owner died](../runbook.md#rollcallownerdied): a crash, a cut, or a `kill -9`. A new leader counts those " +
			"that it finds dead, unless the timeline has them: then the leader before it did",
	},
	"janitor_evicted_total": {
		"Grows after a replica died without a goodbye",
		"[Many entries were evicted](../runbook.md#rollcallevictsmany). From 0, for `increase()`; " +
			"`teltonika_registry_janitor_evicted_total` has the owners",
	},
	"janitor_doubted_owners": {
		"0",
		"Silent owners whose entries are kept for now: [doubted owners](../runbook.md#doubted-owners). A doubt ends by itself",
	},
	"janitor_redis_full": {
		"0",
		"1: [Redis is full](../runbook.md#rollcallredisfull). A replica that does not tick has 0: take the maximum",
	},
	"janitor_dry_run": {
		"0",
		"1: nothing is deleted. For an hour: [a forgotten dry run](../runbook.md#rollcalldryrun)",
	},
	"janitor_held_total": {
		"Constant; a few of `gap` after the first start",
		"[The hold reasons](../runbook.md#hold-reasons)",
	},
	"janitor_scanned_total": {
		"`registry`: grows by the registry's size with each [full scan](../timings.md#when-a-full-scan-runs)",
		"`owners` is constant on the leader: no pass runs",
	},
	"janitor_full_scans_total": {
		"`interval` grows, by itself, where everything is indexed",
		"Another [reason](../timings.md#when-a-full-scan-runs) grows each interval: the full scan has something to find, and costs what it did before it could be put off",
	},
	"janitor_full_scan_due_timestamp_seconds": {
		"On the leader: at most 15 minutes ahead, or a `JANITOR_INTERVAL` if that is longer",
		"Past: a pass is under way, is held or fails. 0: this process does not lead, or its term has had no full scan yet",
	},
	"janitor_pass_progress_ratio": {
		"0 between passes, 0 to 1 in one",
		"Constant during a pass: look at `janitor_redis_share`",
	},
	"janitor_redis_share": {
		"`JANITOR_REDIS_SHARE` on the leader, 0 elsewhere",
		"Less on the leader: [sweeping is slow](../operate.md#sweeping-is-slow)",
	},
	"janitor_throttled_seconds_total": {
		"Constant",
		"`latency`: small calls take longer than usual. `heartbeat`: a living owner beats late. See [sweeping is slow](../operate.md#sweeping-is-slow)",
	},
	"janitor_witness_seconds": {
		"Rises without end",
		"Near 0 on all replicas: a hold began just now. On a replica that does not lead 0 may also mean \"not known\": take the maximum",
	},
	"teltonika_registry_failures_total": {
		"0",
		"`heartbeat`: Redis is away, or refuses. `register`: ids not registered at the first try; they are served, and healed later. `release`, `heal`, `check`, `compare` (index and claims): tried again. `listen`: what it publishes on its channel does not arrive; it subscribes anew. `lookup`: the caller got the error",
	},
	"teltonika_registry_held": {
		"The number of devices that are connected here",
		"Far below `ingest_connections`: sockets that have not sent an IMEI",
	},
	"teltonika_registry_contested_total": {
		"0, or few",
		"Two clients have one id, and take it from each other: look for one that does not stop at `moved`",
	},
	"teltonika_registry_healed_total": {
		"0",
		"Redis lost entries, or entries of a living owner were evicted: a failover, a flush, a stall of this process",
	},
	"ingest_certificate_ends_seconds": {
		"Months ahead",
		"Within 14 days: put a new certificate into the file of `INGEST_TLS_CERT`. Absent without TLS",
	},
	"ingest_connections": {
		"The number of devices, and a few more",
		"At `INGEST_MAX_CONNS`: devices wait for a place. If `ingest_unproven` and `ingest_largest_network` are small, add replicas",
	},
	"ingest_connections_limit": {
		"Steady",
		"Below `INGEST_MAX_CONNS`: the limit of open files allows no more; the log names both",
	},
	"ingest_unidentified": {
		"Near 0; a reconnect storm shows for a moment",
		"Near a quarter of `INGEST_MAX_CONNS`, or 4,096: somebody floods the port. Look at `ingest_disconnects_total{reason=\"crowded\"}`",
	},
	"ingest_unproven": {
		"Near 0; a reconnect storm shows for a moment",
		"Near `ingest_connections`: somebody invents IMEIs. Look at `ingest_disconnects_total{reason=\"crowded\"}`",
	},
	"ingest_largest_network": {
		"What the operator with most of your devices has behind one network",
		"Near `ingest_connections_limit`, and not that: somebody stores records for invented IMEIs. Others get an equal share; set `DEVICE_AUTHORITY=set`",
	},
	"ingest_registrations": {
		"Near 0",
		"At 4,096 for long: Redis is away, and devices that come wait for their answer",
	},
	"ingest_handshakes_total": {
		"`accepted`",
		"`refused`: not a tracker, or not by its certificate. `incomplete`: gone or too slow. `unknown_device`: not in `devices:allowed`. `undecided`: Redis did not answer in time",
	},
	"ingest_authority_failures_total": {
		"0",
		"Only with `DEVICE_AUTHORITY=set`: [known devices are served, others wait](../devices.md#which-devices-are-served)",
	},
	"ingest_imei_luhn_failures_total": {
		"Few",
		"Many: devices with invented IMEIs",
	},
	"ingest_frames_total": {
		"`acknowledged`",
		"`failed`: Redis did not take it in time; the device sends it again. `dead`: kept in `telemetry:teltonika:dead`. `repeated`: one of these came again, and was acknowledged. `rejected`: framing or checksum. `unanswered`: stored, but the device was gone; it may be stored twice. `abandoned`: its socket was closed while it waited because the device sends too much. `command`: a frame without telemetry",
	},
	"ingest_records_total": {
		"Grows",
		"Constant while there are connections: see `ingest_frames_total`",
	},
	"ingest_disconnects_total": {
		"`closed`, `network`, `idle`, `moved`, `draining`",
		"`store`: Redis did not take records in time. `refused`, `incomplete`, `framing`, `unknown`: what devices sent. `moved`: the device has a newer socket, here or at another replica. `tls`: no TLS handshake. `certificate`: none, none that counts, or another device's: [device certificates](../devices.md#device-certificates). `proxy`: no PROXY header. `untrusted`: not from `INGEST_PROXY_TRUSTED`. `unknown_device`, `undecided`: [which devices are served](../devices.md#which-devices-are-served). `crowded`: closed to make room: [who goes](../devices.md#who-goes-when-there-is-no-room). `unproven`: an IMEI, and no frame within `INGEST_FIRST_FRAME`",
	},
	"ingest_bytes_total": {
		"About 65 to 120 bytes in a record",
		"What devices sent and were answered, without the bytes of TLS and PROXY headers. Much `in` and few records: somebody sends other data than telemetry",
	},
	"ingest_dead_letters_total": {
		"0",
		"A firmware that is not understood. Look at the frames: `redis-cli XREVRANGE telemetry:teltonika:dead + - COUNT 3`; on a Cluster [each stream](../devices.md#several-streams) has its own",
	},
	"ingest_slowed_frames_total": {
		"0; grows while backlogs come in on fast networks",
		"Their device sends more than [one device may](../devices.md#how-much-may-a-device-send). Grows without an end: a device that is broken, or means harm. `XREVRANGE telemetry:teltonika + - COUNT 1000` shows whose records they are",
	},
	"ingest_stray_responses_total": {
		"0, or grows with the commands",
		"Further frames of an answer, late answers, and what devices send of themselves in the type of answers. Each makes later answers on that socket [ambiguous](../devices.md#ambiguous-answers). Many: ask in codec 14",
	},
	"ingest_messages_total": {
		"`stored` grows where devices have serial ports",
		"`lost`: Redis was away for longer than [messages wait](telemetry.md#messages); [the status](http.md#status-field-by-field) has the devices",
	},
	"ingest_messages_waiting": {
		"0, or a few for a moment",
		"Grows: Redis is away",
	},
	"ingest_acknowledgement_seconds": {
		"Milliseconds: this is Redis' time",
		"Above 1 s: Redis is slow, or a backlog is coming in. None is above 10 s: that is `failed`",
	},
	"ingest_commands_total": {
		"`answered`",
		"By [status](../devices.md#statuses). `queued`: moved to the queue. `duplicate`: an id that was used before; `unusable`: no id; both went without an outcome. Answers of the leader for dead instances are in `janitor_passes_total{sweep=\"commands\"}` and the eviction log",
	},
	"ingest_commands_outstanding": {
		"Few",
		"From 5,000 on a device has only one at a time; at 10,000 all further ones are `busy`: devices that take no commands, and long `expires`",
	},
	"ingest_commands_waiting": {
		"As many as your backend queues",
		"Near 10,000: further ones are `busy`. Grows: their devices stay away, and their `expires` is far ahead",
	},
	"orphan_removed_total": {
		"Grows as your application leaks",
		"Jumps: what has the application forgotten to delete, since when? `rollcall restore --list` and the eviction log have the names",
	},
	"orphan_kept_total": {
		"`alive`, `young`",
		"`unreadable`, `unknown`: `cleanup why KEY` names what is unknown. `foreign`: names that `only` leaves alone. `waiting`: marked, and its grace is not over. `marks`, `cap`: more than `cap` candidates are condemned; later passes delete them. `changed`: it was changed between two looks",
	},
	"orphan_held_total": {
		"Constant",
		"[Why a rule is held](../runbook.md#why-a-rule-is-held)",
	},
	"orphan_condemned": {
		"Near 0",
		"Stays high: a rule only reports, is held, or `cap` is small. `cleanup plan` shows them",
	},
	"orphan_last_success_timestamp_seconds": {
		"On the leader: at most one `CLEANUP_INTERVAL` ago",
		"Older: the rule is held or fails, see the status page. It is per process, and missing until the first success",
	},
	"cleanup_cycle_duration_seconds": {
		"Well below 10 s",
		"[Cycles are slow](../runbook.md#cleanupcycleslow)",
	},
	"availability_apply_failed_total": {"Constant", "Redis was away or slow: readers see older states until the feed brings them"},
	"availability_auto_offline_total": {"Grows when apps die without a word", "Many at once: apps cannot reach the service"},
	"availability_bad_keys_total": {
		"Constant", "[Somebody else writes the keys](../availability-runbook.md#availabilitybadkeys)",
	},
	"availability_drift_total": {
		"Constant",
		"`behind`: applies were lost. `differs`, `unknown`: somebody else writes the keys. `ahead`: Postgres lost commits. " +
			"`base`: triggers were off",
	},
	"availability_fed_total":                 {"Grows with changes by raw SQL", "With each change: applies are lost"},
	"availability_heartbeats_mirrored_total": {"Grows on the leader", "Constant on all replicas: nobody leads, or Postgres is away"},
	"availability_heartbeats_total": {
		"`kept`", "`not_online`: apps that were set offline. `deactivated`: refused. `unseeded`: the mirror is not whole. `error`: Redis is away",
	},
	"availability_feed_behind_seconds": {"0", "Above 0: the feed cannot be read or brought: `mirror.feed_error`"},
	"availability_mirror_whole":        {"1", "0: reads fall back to Postgres until a seed is complete"},
	"availability_reads_total":         {"From Redis", "From the source or old: Redis is away, or the mirror is not whole"},
	"availability_seeds_total":         {"1 after a start", "Grows: Redis is flushed or restarted"},
	"availability_snapshots_total":     {"About six a minute in the fleet", "More: the cached answer is lost again and again"},
	"availability_mitras_online":       {"Follows the day", "0 by day: apps cannot reach the service, or cannot go online"},
	"availability_mitras_available":    {"Follows the day", "0: no customer is served; all are busy, silent or offline"},
	"availability_http_request_seconds": {
		"Milliseconds. Codes 2xx; 409 of heartbeats after an auto-offline",
		"`503`: neither Redis nor Postgres can answer. `401` in masses: the secret or the keys have changed",
	},
	"availability_postgres_answers":          {"1", "0: writes fail with 503; reads and heartbeats go on from Redis"},
	"availability_postgres_connections":      {"A few", "The most: see waits"},
	"availability_postgres_connections_busy": {"0 or 1", "Near the most for long: Postgres is slow, or `pool_max_conns` is small"},
	"availability_postgres_connections_most": {"`pool_max_conns` of `DATABASE_URL`", ""},
	"availability_postgres_waits_total":      {"Constant", "Grows: raise `pool_max_conns`, or find out why Postgres is slow"},
	"availability_postgres_wait_seconds_total": {
		"Constant", "Divided by the waits: how long a request waits for a connection",
	},
	"cleanup_cycles_total": {
		"One more each `CLEANUP_INTERVAL`, on the leader",
		"Constant on all replicas: [nothing is cleaned up](../runbook.md#cleanupnotrunning)",
	},
	"cleanup_keys_removed_total": {
		"Grows as your application leaks",
		"More than 1,000 in a cycle: [much goes at once](../runbook.md#cleanupremovesmuch)",
	},
	"cleanup_orphans_removed_total": {
		"The same, without related keys", "Far fewer than keys: each orphan takes many keys along",
	},
	"cleanup_last_cycle_timestamp_seconds": {
		"On the leader: at most one `CLEANUP_INTERVAL` ago",
		"It is per process: on a former leader it does not change. It is missing until the first cycle",
	},
}
