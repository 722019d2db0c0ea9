// Keeps the page up to date: the server renders its parts, and this puts those in that have changed.
// Without it the page is complete, and reloads itself.

import { act } from "./act.js";
import { elements, morph } from "./morph.js";

const $ = (id) => document.getElementById(id);

const every = 1_000; // from an answer to the next question
const patience = 10_000; // with an answer

let heard = 0; // when this replica answered, by performance.now
let trouble = "", all = false, asking = 0;

// live shows that the page is up to date, or why not, and how old it is then.
function live(why) {
	trouble = why;
	document.body.classList.toggle("old", why !== "");
	const since = $("state").dataset.old ?? (heard && age(performance.now() - heard));
	const old = since && why ? ` What is shown is ${since} old.` : "";
	const text = why ? why + old : heard ? "● live" : "asking";
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

// ask puts in what has changed, and asks again. A newer question ends an older one.
async function ask() {
	const turn = ++asking;
	const wanted = new URLSearchParams(new FormData($("tools")));
	if (all) wanted.set("all", "1");
	try {
		const answer = await fetch("page/parts?" + wanted, { signal: AbortSignal.timeout(patience) });
		const text = await answer.text();
		if (turn !== asking) return;
		if (answer.ok) {
			show([text]);
			heard = performance.now();
		}
		live(!answer.ok ? "This replica cannot answer." : $("state").dataset.old ? "Redis does not answer this replica." : "");
	} catch {
		if (turn !== asking) return;
		live("Cut off from this replica, trying again.");
	}
	setTimeout(() => turn === asking && !document.hidden && ask(), all ? 5 * every : every);
}

function tick() {
	if (trouble) live(trouble);
}

// filter follows what the viewer wants to see of the instances: the server picks it.
function filter() {
	let soon;
	$("tools").addEventListener("input", () => {
		clearTimeout(soon);
		soon = setTimeout(ask, 150);
	});
	$("tools").addEventListener("submit", (e) => {
		e.preventDefault();
		if (e.submitter?.name === "all") all = e.submitter.value !== "";
		ask();
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
	if (!document.hidden) ask();
});
setInterval(tick, 1000);
ask();
