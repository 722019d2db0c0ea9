// Changes an element into another one in place, so that focus, selection, scrolling and what is
// unfolded stay. Elements with an id or a data-id keep their identity, wherever they move.

const keyOf = (node) => node.id || node.dataset?.id || "";

// morph makes old look like next.
export function morph(old, next) {
	if (old.nodeType !== Node.ELEMENT_NODE) {
		if (old.data !== next.data) old.data = next.data;
		return;
	}
	if (old.isEqualNode(next)) return;
	const own = (name) => name === "open" && old.nodeName === "DETAILS"; // the viewer's
	for (const { name } of [...old.attributes]) {
		if (!next.hasAttribute(name) && !own(name)) old.removeAttribute(name);
	}
	for (const { name, value } of next.attributes) {
		if (old.getAttribute(name) !== value && !own(name)) old.setAttribute(name, value);
	}
	const keyed = new Map([...old.children].filter(keyOf).map((child) => [keyOf(child), child]));
	let at = old.firstChild;
	for (const child of [...next.childNodes]) {
		const key = keyOf(child);
		let twin = key ? keyed.get(key) : at && !keyOf(at) && at;
		if (twin?.nodeName !== child.nodeName) twin = undefined;
		if (!twin) old.insertBefore(child, at);
		else {
			if (twin === at) at = at.nextSibling;
			else old.insertBefore(twin, at);
			morph(twin, child);
		}
	}
	while (at) {
		const rest = at.nextSibling;
		at.remove();
		at = rest;
	}
}

// elements are those of a text in HTML, which the server has made. Scripts in it would not run.
export function elements(html) {
	return [...new DOMParser().parseFromString(html, "text/html").body.children];
}
