// Shows the fleet: problems, facts, sweeps. It changes the page in place, with the same text as
// cmd/internal/console/page_fleet.go.

import { ago, clock, count, link, make, megabytes, milliseconds, numbers, set, short, whole } from "./words.js";

const $ = (id) => document.getElementById(id);

// showState shows a fleet's head: everything except its instances.
export function showState(fleet, now) {
	showProblems(fleet.problems ?? []);
	const { leader, witness, redis, hold } = fleet;
	const live = fleet.instances.filter((i) => i.alive).length;
	const silent = fleet.instances.length - live;
	if (fleet.partitions) showPartitions(fleet.partitions);
	else replaceLink($("leader"), leader ? leader.instance : "nobody", leader?.address);
	set($("sweeping"), hold?.young ? hold.sentence : hold ? `held: ${held(fleet)}` : fleet.heard ? "allowed" : "not now");
	set($("living"), `${count(live)} live` + (silent ? `, ${count(silent)} silent` : ""));
	set($("entries"), `${count(fleet.entries)} entries`);
	set($("evicted"), `${count(witness.evicted_total)} evicted, ever`);
	set($("redis"), (redis.version || "version not known") + (redis.role ? `, ${redis.role}` : ""));
	set($("memory"), `${megabytes(redis.used_memory)} used` +
		(redis.maxmemory ? ` of ${megabytes(redis.maxmemory)}` : "") +
		(redis.maxmemory_policy ? `, ${redis.maxmemory_policy}` : ""));
	showReports(fleet, now);
	passTime(fleet, now);
}

// showPartitions shows the partitions' leaders. Their number never changes while replicas run.
function showPartitions(p) {
	const here = p.leaders.find((l) => l.instance === document.body.dataset.instance);
	set($("leader"), p.leaders.map((l) => `${l.instance} ${numbers(l.partitions)}`).join(" · ") || "nobody");
	set($("partitions"), `${p.count}, led here: ${here?.partitions.length ?? 0}`);
	set($("largest"), `the largest is ${p.largest}, ${count(p.most_entries)} entries`);
}

// held describes why deletes are held, and in which partitions if there are several.
function held({ hold, partitions }) {
	if (!partitions?.holds || hold.reason === "paused") return hold.reason;
	return partitions.holds.map((h) => `${h.reason} in ${numbers(h.partitions)}`).join(", ");
}

// passTime updates the values that change as time passes.
export function passTime(fleet, now) {
	const { hold, leader, partitions, witness } = fleet;
	set($("term"), partitions ? partitions.unled ? `nobody leads ${numbers(partitions.unled)}` : "" : !leader ? "" : !leader.epoch ? leader.log_lost ? "" : "its term begins" :
		(leader.since ? `since ${ago(now, leader.since)} · ` : "") + `term ${leader.epoch}`);
	const heard = Date.parse(witness.since);
	set($("witness"), heard > 0 && !hold ? (partitions ? `partition ${partitions.worst}, the worst: ` : "") + `Redis heard without a hold for ${short(whole(now - heard))}` : "");
	for (const cell of $("reports").querySelectorAll("[data-at]")) set(cell, ago(now, cell.dataset.at));
	set($("last-evictions"), (fleet.sweeps ?? []).map((s) =>
		`${s.sweep} last evicted ${count(s.count)}${s.owner ? ` of ${s.owner}` : ""}, ${ago(now, s.at)}.`).join(" "));
}

function replaceLink(element, text, address) {
	const node = link(text, address);
	const old = element.firstChild;
	if (element.textContent === text && old?.nodeName === node.nodeName && old?.href === node.href) return;
	element.replaceChildren(node);
}

let told; // the names of the problems read aloud

function showProblems(problems) {
	const level = problems.length === 0 ? "good" : problems[0].level === "wrong" ? "bad" : "warn";
	const verdict = problems.length === 0 ? "All is well" :
		problems.length === 1 ? "One thing needs a look" : `${problems.length} things need a look`;
	showVerdict(level, verdict);
	const list = $("problems");
	const names = problems.map((p) => p.name).join(" ");
	if (list.dataset.names !== names) {
		list.dataset.names = names;
		list.replaceChildren(...problems.map((p) => {
			const what = make("p", {}, make("span"), " ", make("span"));
			if (p.runbook) what.append(" ", make("a", { href: `docs/runbook.md#${p.runbook}`, textContent: "What to do" }));
			return make("li", {}, what);
		}));
	}
	problems.forEach((p, i) => {
		const row = list.children[i];
		row.className = p.level === "wrong" ? "bad" : "warn";
		const [sentence, todo] = row.querySelectorAll("span");
		set(sentence, p.sentence);
		set(todo, p.do ?? "");
	});
	// The sentences count down: a screen reader reads only new ones.
	if (told !== names && told !== undefined) {
		set($("said"), [verdict, ...problems.map((p) => p.sentence)].join(". "));
	}
	told = names;
	document.title = `${problems.length ? `(${problems.length})` : "well ·"} ${document.body.dataset.instance} · ${$("program").textContent}`;
}

// showVerdict shows the state in a sentence.
export function showVerdict(level, text) {
	$("verdict").className = level;
	set($("verdict"), text);
}

function showReports(fleet, now) {
	$("passes").replaceChildren(...(fleet.under_way ?? []).map((p) => {
		const bar = make("progress", { max: 1 });
		if (p.total) bar.value = Math.min(1, p.scanned / p.total);
		const name = p.sweep + (p.dry_run ? " (dry run)" : "");
		return make("li", {}, make("label", {}, name + " ", bar), " ", make("span", {
			textContent: `${count(p.scanned)}${p.total ? ` of ${count(p.total)}` : ""} looked at, ${count(p.evicted)} evicted` +
				(p.seconds_left ? `, about ${short(whole(1000 * p.seconds_left))} left` : ""),
		}));
	}));
	const passes = fleet.passes ?? [];
	const body = $("reports");
	const shown = JSON.stringify(passes);
	if (body.dataset.shown === shown) return;
	body.dataset.shown = shown;
	body.replaceChildren(...passes.map((r) => reportRow(r, now)));
}

// reportRow is a row of a table of passes.
export function reportRow(r, now) {
	const level = { done: "good", held: "warn" }[r.outcome] ?? "bad";
	const number = (text) => make("td", { className: "n", textContent: text });
	const when = number(ago(now, r.started));
	when.dataset.at = r.started;
	return make("tr", {},
		make("th", { scope: "row", textContent: r.sweep + (r.dry_run ? " (dry run)" : "") + (r.owner ? ` of ${r.owner}` : "") }),
		when,
		make("td", {}, make("span", { className: level, textContent: r.outcome + (r.reason ? `: ${r.reason}` : "") }), r.error ? ` ${r.error}` : ""),
		number(count(r.scanned)), number(count(r.condemned)), number(count(r.evicted)),
		number(r.seconds < .001 ? "<1ms" : r.seconds < 1 ? `${Math.round(1000 * r.seconds)}ms` : short(1000 * r.seconds)));
}

// Timeline is the last hour. Events arrive with an id, some repeatedly as they go on.
export class Timeline {
	#events = new Map();

	// add adds events, the newest first; if whole, they replace all.
	add(events, whole, now) {
		if (whole) this.#events.clear();
		for (const e of events) this.#events.set(e.id, e);
		for (const [id, e] of this.#events) if (now - Date.parse(e.at) > 36e5) this.#events.delete(id);
		const sorted = [...this.#events.values()].sort((a, b) => Date.parse(b.at) - Date.parse(a.at));
		const list = $("events");
		const rows = new Map([...list.children].map((row) => [row.dataset.id, row]));
		list.replaceChildren(...sorted.map((e) => {
			const row = rows.get(e.id) ?? eventRow(e);
			set(row.lastElementChild, e.sentence);
			return row;
		}));
		$("quiet").hidden = sorted.length > 0;
		drawHour(sorted, now);
	}
}

function eventRow(e) {
	const row = make("li", { className: e.kind },
		make("time", { dateTime: e.at, textContent: clock(e.at) }), " ", make("span", { textContent: e.sentence }));
	row.dataset.id = e.id;
	return row;
}

// drawHour draws the list: a bar for the evictions of a minute, a line for a new term.
function drawHour(events, now) {
	const hour = $("hour");
	const minutes = new Array(60).fill(0);
	const shapes = [];
	const shape = (name, attributes) => {
		const element = document.createElementNS(hour.namespaceURI, name);
		for (const [k, v] of Object.entries(attributes)) element.setAttribute(k, v);
		shapes.push(element);
	};
	for (const e of events) {
		const minute = Math.min(59, Math.floor((now - Date.parse(e.at)) / 6e4));
		if (minute < 0) continue;
		if (e.kind === "eviction") minutes[minute] += e.count;
		if (e.kind === "term") shape("line", { class: "mark", x1: 599 - 10 * minute, x2: 599 - 10 * minute, y1: 0, y2: 40 });
		if (e.kind === "hold" || e.kind === "pause") shape("circle", { class: "held", cx: 595 - 10 * minute, cy: 6, r: 4 });
	}
	const most = Math.max(...minutes, 1);
	minutes.forEach((n, i) => {
		if (n > 0) {
			const height = Math.max(3, 36 * n / most);
			shape("rect", { class: "bar", x: 591 - 10 * i, y: 40 - height, width: 8, height });
		}
	});
	hour.querySelector("g").replaceChildren(...shapes);
}

// life is the rest of a heartbeat, from 0 to 1, and in words.
export function life(instance, now) {
	if (!instance.alive) return [0, "none"];
	if (!(instance.until > 0)) return [instance.ttl ? 0 : 1, "no end"];
	const left = Math.max(0, instance.until - now);
	return [Math.min(1, left / (milliseconds(instance.ttl) || left || 1)), short(whole(left))];
}
