import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';

export const maxKey = 1024; // bytes

const defaults = { prefix: '', interval: 30_000, ttl: 90_000, drain: 10_000 };

/** complete returns options with the defaults, and throws a TypeError that names a wrong one. */
export function complete(options = {}) {
  const given = Object.entries(options).filter(([, v]) => v != null);
  const o = { ...defaults, ...Object.fromEntries(given) };
  o.unique = o.instance === undefined;
  o.instance ??= `${hostname().slice(0, 64)}-${randomBytes(4).toString('hex')}`;
  const id = o.instance, ms = (v) => Number.isFinite(v) && v > 0;
  if (typeof id !== 'string' || Buffer.byteLength(id) > 200 || !/^[^\s/\p{C}]+$/u.test(id)) {
    throw new TypeError(`instance: expected up to 200 bytes of printable characters without spaces and '/', got ${JSON.stringify(id)}`);
  }
  if (!ms(o.interval) || !Number.isInteger(o.ttl) || o.ttl < 3 * o.interval || o.ttl > 86_400_000) {
    throw new TypeError(`ttl: expected whole ms, at least three times interval and at most a day, got ttl ${o.ttl}, interval ${o.interval}`);
  }
  if (!(Number.isFinite(o.drain) && o.drain >= 0)) throw new TypeError(`drain: expected ms, got ${o.drain}`);
  return o;
}

/** name is a key as Redis has it: in UTF-8, all lone surrogates are the same. */
export function name(key) {
  return String(key).toWellFormed();
}
