// The requests that change something: sweep, pause, resume, resign. Each is a POST with the token
// in a header. The token is kept for this tab alone, until it is closed.

import { leads, link, make, set } from "./words.js";
import { reportRow } from "./show.js";

const $ = (id) => document.getElementById(id);
const kept = "rollcall-token";

// act wires the forms, if there are any. Call follow with each new state of the fleet.
export function act(clock) {
	if (!$("forms")) return { follow() {} };
	let fleet;
	const usable = () => {
		const has = sessionStorage.getItem(kept) !== null;
		$("token").hidden = has;
		$("token").labels[0].hidden = has;
		$("token-form").querySelector("button").hidden = has;
		$("forget").hidden = !has;
		$("forms").hidden = !has;
	};
	$("token-form").addEventListener("submit", (e) => {
		e.preventDefault();
		sessionStorage.setItem(kept, $("token").value);
		$("token").value = "";
		usable();
		$("forms").querySelector("input").focus();
	});
	$("forget").addEventListener("click", () => {
		sessionStorage.removeItem(kept);
		usable();
		$("token").focus();
	});

	const post = async (path, parameters, done) => {
		const outcome = $("outcome");
		outcome.replaceChildren(make("p", { className: "dim", textContent: "Under way …" }));
		let response, answer;
		try {
			const ask = () => fetch("api/v1/" + path, {
				method: "POST", body: new URLSearchParams(parameters), redirect: "error",
				headers: { Authorization: "Bearer " + sessionStorage.getItem(kept) },
			});
			response = await ask();
			if (response.status === 429) { // not checked: a token from this address was wrong a moment ago
				await new Promise((over) => setTimeout(over, 1000 * (response.headers.get("Retry-After") ?? 1)));
				response = await ask();
			}
			answer = await response.json();
		} catch {
			outcome.replaceChildren(make("p", { className: "bad", textContent: "No answer from this replica: whether it was done is not known." }));
			return;
		}
		if (response.ok) return outcome.replaceChildren(...done(answer));
		if (response.status === 401) {
			sessionStorage.removeItem(kept);
			usable();
			$("token").focus();
		}
		const text = make("p", { className: "bad", textContent: refusals[response.status] ?? answer.error });
		if (response.status === 409 && answer.leader) {
			const leader = fleet?.leader?.instance === answer.leader ? fleet.leader.address : "";
			text.append(" Do it on the page of ", link(answer.leader, leader), ".");
		}
		outcome.replaceChildren(text);
	};
	const said = (text) => () => [make("p", { className: "good", textContent: text })];

	$("sweep-form").addEventListener("submit", async (e) => {
		e.preventDefault();
		const data = filled(e.target);
		const dry = e.submitter?.name === "dry_run";
		const what = (data.sweep ? `the sweep ${data.sweep}` : "each sweep") + (data.owner ? ` of what ${data.owner} left` : "");
		if (dry) data.dry_run = "true";
		else if (!await sure(`Run ${what} now? What lives is kept, as always.`, "Sweep")) return;
		post("sweep", data, (answer) => reports(answer.reports ?? [], clock()));
	});
	$("pause-form").addEventListener("submit", (e) => {
		e.preventDefault();
		const data = filled(e.target);
		post("pause", data, (answer) => said("Paused" + (data.for ? ` for ${data.for}.` : " until resumed.") +
			(answer.paused?.until?.startsWith("0001") === false ? ` It ends at ${answer.paused.until}.` : ""))());
	});
	$("resume").addEventListener("click", () => post("resume", {}, said("Resumed.")));
	$("resign-form").addEventListener("submit", async (e) => {
		e.preventDefault();
		if (await sure("Give up the lease? This replica does not contend for one lease TTL.", "Resign")) {
			post("resign", {}, said("It has resigned."));
		}
	});
	usable();
	return {
		follow(state) {
			fleet = state;
			const led = leads(state, document.body.dataset.instance);
			const note = $("acting");
			const text = led ? `This replica ${led}${state.partitions ? " of the partitions, and sweeps these" : ""}.` : state.leader ?
				"Pause and resume work here. Only the leader sweeps and resigns: " : "Nobody leads: only pause and resume work.";
			if (note.dataset.of !== text + state.leader?.instance) {
				note.dataset.of = text + state.leader?.instance;
				note.replaceChildren(text);
				if (!led && state.leader) note.append(link(state.leader.instance, state.leader.address));
			}
			const names = (state.passes ?? []).map((p) => p.sweep).sort();
			const select = $("sweep-form").elements.sweep;
			for (const name of names) {
				if (![...select.options].some((o) => o.value === name)) select.append(new Option(name, name));
			}
		},
	};
}

const refusals = { 401: "The token was refused.", 403: "Requests that change something are off on this replica." };

// filled are a form's fields that are not empty.
function filled(form) {
	return Object.fromEntries([...new FormData(form)].filter(([, v]) => v !== ""));
}

function reports(all, now) {
	const head = make("tr", {});
	for (const [text, name] of [["Pass of", ""], ["When", "n"], ["Outcome", ""], ["Looked at", "n"], ["Condemned", "n"], ["Evicted", "n"], ["Took", "n"]]) {
		head.append(make("th", { scope: "col", className: name, textContent: text }));
	}
	return [make("div", { className: "scroll" }, make("table", {},
		make("caption", { textContent: "What it did" }), make("thead", {}, head),
		make("tbody", {}, ...all.map((r) => reportRow(r, now)))))];
}

// sure asks before an irreversible action. The next question waits for the answer to the last
// one: a dialog reports its answer a moment after it closes, and would report it to both.
let answered = Promise.resolve();
function sure(question, yes) {
	answered = answered.then(() => new Promise((resolve) => {
		const dialog = $("sure");
		set($("question"), question);
		set($("yes"), yes);
		dialog.returnValue = "no";
		dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
		dialog.showModal();
	}));
	return answered;
}
