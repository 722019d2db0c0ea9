import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';

export const longestID = 1024; // bytes

/** complete returns options with the defaults, and throws a TypeError that names a wrong one. */
export function complete(options, defaults) {
  const o = { redis: null, prefix: '', ...defaults };
  for (const [option, value] of Object.entries(options ?? {})) {
    if (!(option in o)) throw new TypeError(`${option}: no such option, expected ${Object.keys(o).join(', ')}`);
    o[option] = value ?? o[option];
  }
  const plain = '[!-)+->@-Z^-z|~]*'; // others could not be put into an ACL
  if (o.prefix.length > 100 || !new RegExp(`^${plain}(\\{${plain}\\}${plain})?$`).test(o.prefix)) {
    throw new TypeError(`prefix: expected up to 100 printable ASCII characters without spaces and *?[]\\, with at most one {tag}, got ${JSON.stringify(o.prefix)}`);
  }
  return o;
}

/** settings completes the options of a Replica. */
export function settings(options) {
  const o = complete(options, { instance: null, intervalMs: 30_000, ttlMs: null, drainMs: 10_000 });
  o.unique = o.instance === null;
  o.instance ??= `${hostname().slice(0, 64)}-${randomBytes(4).toString('hex')}`;
  o.ttlMs ??= 3 * o.intervalMs;
  const { instance, intervalMs, ttlMs, drainMs } = o;
  if (typeof instance !== 'string' || Buffer.byteLength(instance) > 200 || !/^[^\s/\p{C}]+$/u.test(instance)) {
    throw new TypeError(`instance: expected up to 200 bytes of printable characters without spaces and '/', got ${JSON.stringify(instance)}`);
  }
  if (!Number.isInteger(intervalMs) || intervalMs < 1) throw new TypeError(`intervalMs: expected whole ms, got ${intervalMs}`);
  if (!Number.isInteger(ttlMs) || ttlMs < 3 * intervalMs || ttlMs > 86_400_000) {
    throw new TypeError(`ttlMs: expected whole ms, at least three times intervalMs and at most a day, got ${ttlMs}, intervalMs ${intervalMs}`);
  }
  if (!Number.isFinite(drainMs) || drainMs < 0) throw new TypeError(`drainMs: expected ms, got ${drainMs}`);
  return o;
}

/** name is an id as Redis has it: in UTF-8, all lone surrogates are the same. */
export function name(id) {
  if (typeof id !== 'string') throw new TypeError(`an id is a string, got ${id === null ? null : typeof id}`);
  return id.toWellFormed();
}
