// Words for numbers and times, as cmd/internal/console/page.go and cmd/internal/inspect/words.go
// write them.

// count groups the digits of a number.
export function count(n) {
	return String(n).replace(/\B(?=(\d{3})+$)/g, ",");
}

// short formats milliseconds for people.
export function short(ms) {
	if (ms < 0) return "-" + short(-ms);
	const tenths = Math.round(ms / 100) / 10;
	if (tenths < 10) return tenths === 0 ? "0s" : tenths + "s";
	const s = Math.round(ms / 1000);
	if (s < 60) return s + "s";
	if (s < 3600) return Math.floor(s / 60) + "m" + (s % 60 ? (s % 60) + "s" : "");
	const m = Math.round(s / 60);
	if (m < 24 * 60) return Math.floor(m / 60) + "h" + (m % 60 ? (m % 60) + "m" : "");
	const h = Math.round(m / 60);
	return Math.floor(h / 24) + "d" + (h % 24 ? (h % 24) + "h" : "");
}

// ago is how long before now, in milliseconds, a time was.
export function ago(now, time) {
	const at = Date.parse(time);
	if (!(at > 0)) return "never";
	return now - at < 1000 ? "just now" : short(whole(now - at)) + " ago";
}

// whole drops tenths of a second, which would only flicker.
export function whole(ms) {
	return Math.floor(ms / 1000) * 1000;
}

// milliseconds parses a duration such as 1m30s or 2d3h; it returns NaN for anything else.
export function milliseconds(text) {
	const unit = { ms: 1, s: 1e3, m: 6e4, h: 36e5, d: 864e5 };
	const parts = String(text ?? "").matchAll(/([\d.]+)(ms|s|m|h|d)/g);
	let sum = NaN;
	for (const [, n, u] of parts) sum = (sum || 0) + Number(n) * unit[u];
	return sum;
}

// clock is the time of day, in UTC as everywhere here.
export function clock(time) {
	return new Date(time).toISOString().slice(11, 19);
}

export function megabytes(n) {
	return (n / 1048576).toFixed(1) + " MB";
}

// set changes a text only if it differs, to spare the browser drawing it.
export function set(element, text) {
	if (element.textContent !== text) element.textContent = text;
}

// make returns an element with properties and children.
export function make(name, properties = {}, ...children) {
	const element = Object.assign(document.createElement(name), properties);
	element.append(...children);
	return element;
}

// link names a replica, and links to its own page if its address can be reached.
export function link(instance, address) {
	const reachable = /^(\[[0-9a-f:.]+\]|[\w.-]+):\d+$/i.test(address ?? "") && !/^(\[::\]|0\.0\.0\.0):/.test(address);
	return reachable ? make("a", { href: `http://${address}/`, textContent: instance }) : document.createTextNode(instance);
}

// numbers formats partitions for people: 0-3, 7.
export function numbers(partitions) {
	const texts = [];
	for (let i = 0, j; i < partitions.length; i = j + 1) {
		for (j = i; partitions[j + 1] === partitions[j] + 1;) j++;
		texts.push(j > i ? `${partitions[i]}-${partitions[j]}` : `${partitions[i]}`);
	}
	return texts.join(", ");
}

// leads describes what an instance leads; "": nothing.
export function leads(fleet, id) {
	if (!fleet.partitions) return fleet.leader?.instance === id ? "leads" : "";
	const led = fleet.partitions.leaders.find((l) => l.instance === id);
	return led ? `leads ${numbers(led.partitions)}` : "";
}
