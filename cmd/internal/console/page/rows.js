// The table of instances: those to look at first, the rest by name. It pages long lists.

import { ago, count, leads, link, set, short, whole } from "./words.js";
import { life } from "./show.js";

const $ = (id) => document.getElementById(id);
const page = 50;

export class Rows {
	#rows = new Map(); // by id
	#shown = []; // instances, in order
	#all = false;
	#fleet;

	constructor(clock) {
		this.#rows = new Map([...$("rows").children].map((row) => [row.dataset.id, row]));
		const again = () => this.#fleet && this.show(this.#fleet, clock());
		$("filter").addEventListener("input", again);
		$("odd").addEventListener("change", again);
		$("more").addEventListener("click", () => {
			this.#all = !this.#all;
			again();
		});
	}

	// show shows the present instances.
	show(fleet, now) {
		this.#fleet = fleet;
		const odd = (i) => !i.alive ? 0 : i.differs ? 1 : leads(fleet, i.id) ? 2 : 3;
		const text = $("filter").value.trim().toLowerCase();
		const wanted = fleet.instances
			.map((i) => ({ i, rank: odd(i) }))
			.filter(({ i, rank }) => (!text || i.id.toLowerCase().includes(text) || (i.version ?? "").toLowerCase().includes(text)) &&
				(!$("odd").checked || rank < 2))
			.sort((a, b) => a.rank - b.rank || (a.i.id < b.i.id ? -1 : 1));
		const shown = this.#all ? wanted : wanted.slice(0, page);
		const body = $("rows");
		shown.forEach(({ i, rank }, at) => {
			const row = this.#row(i, rank, fleet);
			if (body.children[at] !== row) body.insertBefore(row, body.children[at] ?? null);
		});
		while (body.children.length > shown.length) body.lastElementChild.remove();
		for (const id of this.#rows.keys()) if (!fleet.byID.has(id)) this.#rows.delete(id);
		this.#shown = shown.map(({ i }) => i);
		const n = fleet.instances.length;
		set($("shown"), shown.length === n ? "" : `${count(shown.length)} of ${count(n)} instances` +
			(wanted.length < n ? `; ${count(wanted.length)} match` : ""));
		$("more").hidden = wanted.length <= page;
		set($("more"), this.#all ? `Show ${page}` : `Show all ${count(wanted.length)}`);
		this.pass(now);
	}

	// #row is the row of an instance, with the values that do not change as time passes.
	#row(i, rank, fleet) {
		let row = this.#rows.get(i.id);
		if (!row) {
			row = $("row").content.firstElementChild.cloneNode(true);
			row.dataset.id = i.id;
			this.#rows.set(i.id, row);
		}
		row.className = ["bad", "warn", "leads", ""][rank];
		const name = row.firstElementChild;
		if (row.dataset.address !== (i.address ?? "") || name.textContent !== i.id) {
			row.dataset.address = i.address ?? "";
			name.replaceChildren(link(i.id, i.address));
		}
		set(row.querySelector(".devices"), i.devices < 0 ? "?" : count(i.devices));
		set(row.querySelector(".version"), i.version ?? "");
		set(row.querySelector(".remarks"), [
			leads(fleet, i.id),
			i.id === document.body.dataset.instance ? "this replica" : "",
			i.alive || i.silent_in ? "" : "silent", i.differs ?? "", i.old ? "plain writer: not healed" : "",
		].filter(Boolean).join(" · "));
		return row;
	}

	// pass updates the values that change as time passes, in visible rows.
	pass(now) {
		for (const i of this.#shown) {
			const row = this.#rows.get(i.id);
			const [share, left] = life(i, now);
			const meter = row.querySelector("meter");
			if (Math.abs(meter.value - share) > .004) meter.value = share;
			set(row.querySelector(".life span"), left);
			set(row.querySelector(".beat"), i.last_beat ? ago(now, i.last_beat) : "");
			set(row.querySelector(".running"), i.started ? short(whole(now - Date.parse(i.started))) : "");
		}
	}
}
