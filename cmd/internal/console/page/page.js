// Follows the fleet by server-sent events. Without it the page is complete, and reloads itself.

import { Rows } from "./rows.js";
import { showState, showVerdict, passTime, Timeline } from "./show.js";
import { milliseconds, set, short, whole } from "./words.js";
import { search } from "./find.js";
import { act } from "./act.js";

const $ = (id) => document.getElementById(id);

// The server is silent for 15 s at most. A longer silence means that the stream is broken, whatever
// the browser thinks.
const silence = 20_000;
const again = 2_000; // until a refused stream is requested again

const fleet = { instances: [], byID: new Map(), known: false };
let offset = 0; // of the server's clock from this one
let heard = 0; // when the last event arrived, by performance.now
let frozen; // the server's time, while the present is unknown
let stream, trouble = "";

const clock = () => frozen ?? Date.now() + offset;
const rows = new Rows(clock);
const timeline = new Timeline();

// learn applies a fleet event: the whole fleet, or changes.
function learn(news) {
	const now = Date.parse(news.now);
	if (news.whole) fleet.byID.clear();
	for (const id of news.gone ?? []) fleet.byID.delete(id);
	for (const i of news.instances) {
		const left = milliseconds(i.expires_in);
		i.until = now + left;
		fleet.byID.set(i.id, i);
	}
	Object.assign(fleet, news, { instances: [...fleet.byID.values()], known: true });
	document.body.dataset.instance = news.replica?.instance ?? document.body.dataset.instance;
	showState(fleet, now);
	rows.show(fleet, now);
	$("owners").replaceChildren(...fleet.instances.slice(0, 200).map((i) => new Option(i.id, i.id)));
	acting.follow(fleet);
}

// alive records that the stream lives, and the server's time.
function alive(now) {
	heard = performance.now();
	if (now) offset = Date.parse(now) - Date.now();
	frozen = undefined;
	trouble = "";
	state();
}

// cut records that the present is unknown.
function cut(why) {
	frozen ??= clock();
	trouble = why;
	state();
}

// state shows whether the page is up to date. Time stops while it is not: an instance must not look
// dead because no news arrived.
function state() {
	const link = $("link");
	document.body.classList.toggle("old", trouble !== "");
	link.className = trouble ? "bad" : "good";
	if (!trouble) return set(link, fleet.known ? "● live" : "asking");
	const old = fleet.known ? ` What is shown is ${short(whole(performance.now() - heard))} old.` : "";
	set(link, trouble + old);
	if (!fleet.known) showVerdict("bad", "The state of the fleet is not known");
}

function open() {
	stream?.close();
	stream = new EventSource("api/v1/events");
	const on = (name, take) => stream.addEventListener(name, (e) => {
		const news = JSON.parse(e.data);
		alive(news.now);
		take(news);
	});
	on("fleet", learn);
	let first = true;
	on("timeline", (news) => {
		timeline.add(news.events, first, clock());
		first = false;
	});
	on("alive", () => {});
	stream.addEventListener("open", () => first = true);
	stream.addEventListener("failed", (e) => {
		cut("Redis does not answer this replica.");
		$("link").title = JSON.parse(e.data).error;
	});
	stream.addEventListener("error", () => {
		cut("Cut off from this replica, trying again.");
		// A browser reconnects by itself, but not to a server that refused.
		if (stream.readyState === EventSource.CLOSED) setTimeout(open, again);
	});
}

function tick() {
	if (!trouble && fleet.known && performance.now() - heard > silence) {
		cut("Nothing comes from this replica, trying again.");
		open();
	}
	if (trouble) return state();
	if (!fleet.known) return;
	passTime(fleet, clock());
	rows.pass(clock());
}

// refresh renews the part about this replica, which the server renders.
async function refresh() {
	if (document.hidden || trouble) return;
	try {
		const answer = await fetch("page/own");
		if (!answer.ok) return;
		const part = new DOMParser().parseFromString(await answer.text(), "text/html");
		$("own").replaceChildren(...part.body.childNodes);
	} catch {
		// the stream shows that the replica is away
	}
}

document.body.classList.add("live");
search();
const acting = act(clock);
// A hidden page requests nothing.
document.addEventListener("visibilitychange", () => {
	if (document.hidden) stream?.close();
	else open();
});
setInterval(tick, 1000);
setInterval(refresh, 5000);
state();
open();
