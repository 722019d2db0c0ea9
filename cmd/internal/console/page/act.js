// The requests that change something: sweep, pause, resume, resign. Each is a POST with the token
// in a header. The token is kept for this tab alone, until it is closed.

import { elements } from "./morph.js";

const $ = (id) => document.getElementById(id);
const kept = "rollcall-token";

// say returns a paragraph.
function say(className, textContent) {
	return Object.assign(document.createElement("p"), { className, textContent });
}

// act wires the forms, if there are any.
export function act() {
	if (!$("forms")) return;
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
		outcome.replaceChildren(say("dim", "Under way …"));
		let response, answer;
		try {
			const ask = () => fetch("api/v1/" + path, {
				method: "POST", body: new URLSearchParams(parameters), redirect: "error",
				headers: { Authorization: "Bearer " + sessionStorage.getItem(kept), Accept: "text/html" },
			});
			response = await ask();
			if (response.status === 429) { // not checked: a token from this address was wrong a moment ago
				await new Promise((over) => setTimeout(over, 1000 * (response.headers.get("Retry-After") ?? 1)));
				response = await ask();
			}
			const text = await response.text();
			const json = response.headers.get("Content-Type") === "application/json";
			answer = json ? JSON.parse(text) : elements(text); // the reports of a sweep
		} catch {
			outcome.replaceChildren(say("bad", "No answer from this replica: whether it was done is not known."));
			return;
		}
		if (response.ok) return outcome.replaceChildren(...done(answer));
		if (response.status === 401) {
			sessionStorage.removeItem(kept);
			usable();
			$("token").focus();
		}
		const text = say("bad", refusals[response.status] ?? answer.error);
		if (response.status === 409 && answer.leader) {
			text.append(" Do it on the page of ", answer.leader, ".");
		}
		outcome.replaceChildren(text);
	};
	const said = (text) => () => [say("good", text)];

	$("sweep-form").addEventListener("submit", async (e) => {
		e.preventDefault();
		const data = filled(e.target);
		const dry = e.submitter?.name === "dry_run";
		const what = (data.sweep ? `the sweep ${data.sweep}` : "each sweep") + (data.owner ? ` of what ${data.owner} left` : "");
		if (dry) data.dry_run = "true";
		else if (!await sure(`Run ${what} now? What lives is kept, as always.`, "Sweep")) return;
		post("sweep", data, (reports) => reports);
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
}

const refusals = { 401: "The token was refused.", 403: "Requests that change something are off on this replica." };

// filled are a form's fields that are not empty.
function filled(form) {
	return Object.fromEntries([...new FormData(form)].filter(([, v]) => v !== ""));
}

// sure asks before an irreversible action. The next question waits for the answer to the last
// one: a dialog reports its answer a moment after it closes, and would report it to both.
let answered = Promise.resolve();
function sure(question, yes) {
	answered = answered.then(() => new Promise((resolve) => {
		const dialog = $("sure");
		$("question").textContent = question;
		$("yes").textContent = yes;
		dialog.returnValue = "no";
		dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
		dialog.showModal();
	}));
	return answered;
}
