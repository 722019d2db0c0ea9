// Keeps the page up to date: the server renders its parts, and this puts those in that have changed.
// Without it the page is complete, and reloads itself.

import { act } from "./act.js";
import { elements, morph } from "./morph.js";

const $ = (id) => document.getElementById(id);

// The server is silent for 15 s at most. A longer silence means that the stream is broken, whatever
// the browser thinks.
const silence = 20_000;
const again = 2_000; // until a refused stream is requested again

let known = false; // the fleet's state has been shown
let heard = 0; // when it was, by performance.now
let stream, trouble = "", all = false;

// live shows that the page is up to date, or why not, and how old it is then.
function live(why) {
	trouble = why;
	document.body.classList.toggle("old", why !== "");
	const old = known && why ? ` What is shown is ${age(performance.now() - heard)} old.` : "";
	const text = why ? why + old : known ? "● live" : "asking";
	$("link").className = why ? "bad" : "good";
	if ($("link").textContent !== text) $("link").textContent = text;
}

function age(ms) {
	const s = Math.floor(ms / 1000);
	return s < 60 ? `${s}s` : `${Math.floor(s / 60)}m${s % 60}s`;
}

// show puts parts in. A screen reader is told of new problems, not of their counting down.
function show(parts) {
	const names = $("state").dataset.names;
	for (const part of parts.flatMap(elements)) {
		const old = $(part.id);
		if (old) morph(old, part);
	}
	const { title, names: now } = $("state").dataset;
	if (document.title !== title) document.title = title;
	if (now === names) return;
	$("said").textContent = [$("verdict"), ...$("problems").children].map((e) => e.innerText).join(". ");
}

function open() {
	stream?.close();
	const wanted = new URLSearchParams(new FormData($("tools")));
	if (all) wanted.set("all", "1");
	stream = new EventSource("page/live?" + wanted);
	stream.addEventListener("parts", (e) => {
		const news = JSON.parse(e.data);
		show(news.parts);
		$("link").title = news.error ?? "";
		if (!news.error) {
			known = true;
			heard = performance.now();
		}
		live(news.error ? "Redis does not answer this replica." : "");
	});
	stream.addEventListener("alive", () => {
		if (!$("link").title) heard = performance.now();
	});
	stream.addEventListener("error", () => {
		live("Cut off from this replica, trying again.");
		// A browser reconnects by itself, but not to a server that refused.
		if (stream.readyState === EventSource.CLOSED) setTimeout(open, again);
	});
}

function tick() {
	if (!trouble && known && performance.now() - heard > silence) {
		live("Nothing comes from this replica, trying again.");
		open();
	}
	if (trouble) live(trouble);
}

// filter follows what the viewer wants to see of the instances: the server picks it.
function filter() {
	let soon;
	$("tools").addEventListener("input", () => {
		clearTimeout(soon);
		soon = setTimeout(open, 150);
	});
	$("tools").addEventListener("submit", (e) => {
		e.preventDefault();
		if (e.submitter?.name === "all") all = e.submitter.value !== "";
		open();
	});
}

function search() {
	const form = $("find").querySelector("form");
	let last = 0;
	form.addEventListener("submit", async (e) => {
		e.preventDefault();
		const key = $("key").value.trim();
		if (!key) return;
		const turn = ++last;
		const question = "?" + new URLSearchParams({ key });
		history.replaceState(null, "", question); // the address can be shared
		$("answer").setAttribute("aria-busy", "true");
		let parts;
		try {
			parts = elements(await (await fetch("page/why" + question)).text());
		} catch {
			const p = document.createElement("p");
			p.className = "bad";
			p.textContent = "This replica does not answer.";
			parts = [p];
		}
		if (turn !== last) return; // a newer search has begun
		$("answer").removeAttribute("aria-busy");
		$("answer").replaceChildren(...parts);
	});
}

document.body.classList.add("live");
live("");
search();
filter();
act();
// A hidden page requests nothing.
document.addEventListener("visibilitychange", () => {
	if (document.hidden) stream?.close();
	else open();
});
setInterval(tick, 1000);
open();
