// The search for a device or a key: why it exists, or is gone.

import { make } from "./words.js";

const $ = (id) => document.getElementById(id);

export function search() {
	const form = $("find").querySelector("form");
	let last = 0;
	const look = async (key) => {
		const turn = ++last;
		$("answer").setAttribute("aria-busy", "true");
		let parts;
		try {
			parts = await answer(key);
		} catch {
			parts = [make("p", { className: "bad", textContent: "This replica does not answer." })];
		}
		if (turn !== last) return; // a newer search has begun
		$("answer").removeAttribute("aria-busy");
		$("answer").replaceChildren(...parts);
	};
	form.addEventListener("submit", (e) => {
		e.preventDefault();
		const key = $("key").value.trim();
		if (!key) return;
		// The address can be shared.
		history.replaceState(null, "", "?" + new URLSearchParams({ key }));
		look(key);
	});
}

async function answer(key) {
	const response = await fetch("api/v1/why?" + new URLSearchParams({ key }));
	const why = await response.json();
	if (!response.ok) return [make("p", { className: "bad", textContent: why.error })];
	const parts = [make("p", { className: why.verdict === "kept" ? "good" : "warn", textContent: why.sentence })];
	if (why.records?.length) {
		const head = make("tr", {}, ...["At", "Sweep", "Owner", "By", "Term"].map((text) => make("th", { scope: "col", textContent: text })));
		parts.push(make("table", {},
			make("caption", { textContent: "Records of the eviction log that name it" }), make("thead", {}, head),
			make("tbody", {}, ...why.records.map((r) => make("tr", {}, ...[
				(r.at ?? "").replace(/\.\d+/, ""), r.sweep, r.owner ?? "", r.leader, String(r.epoch),
			].map((text) => make("td", { textContent: text })))))));
	}
	return parts;
}
