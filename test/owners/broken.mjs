// The owner of clients/node with one thing wrong with it, which BREAK names: see broken_test.go.
const at = (file) => import(`${process.env.NODE}/${file}`);
const { Replica } = await at('lib/replica.js'), { Claim, MovedError } = await at('lib/claim.js');
const { Table } = await at('lib/table.js'), { Clock, now } = await at('lib/clock.js');
const { Connection, isReadOnly } = await at('lib/redis.js');

/** alter replaces a method by f, which gets the former one. */
function alter(of, method, f) {
  const was = of.prototype[method];
  of.prototype[method] = function (...args) { return f.call(this, was.bind(this), ...args); };
}

const nothing = () => {};
const running = (f) => alter(Connection, 'run', f);
/** sending runs a script with another argument in this place. */
const sending = (script, place, value) => running((was, name, keys, args) => was(name, keys, name === script ? args.with(place, value) : args));
const answering = (script, f) => running(async function (was, name, ...more) {
  const out = await was(name, ...more);
  return name === script ? f(out) : out;
});
/** asked alters the words of a question. */
const asked = (f) => alter(Table, 'compare', (was, other, words) => was(other, words.map(f)));
const getter = (of, name, get) => Object.defineProperty(of.prototype, name, { get, set: nothing });
const seen = new Set();

const ways = {
  'record missing': () => alter(Replica, '_read', (was, got) => was({ ...got, found: got.found || got.last })),
  'record older': () => answering('beat', (out) => out.with(1, out[1] && out[2])),
  'own silence': () => alter(Replica, '_read', (was, got) => was({ ...got, found: got.found && got.last })),
  'loss recorded': () => alter(Replica, '_read', (was, got) => was({ ...got, lost: '' })),
  'registry missing': () => sending('beat', -1, '0'),
  'lost answer': () => alter(Replica, '_noteFailed', (was, err) => isReadOnly(err) && was(err)),
  'no writes taken': () => alter(Replica, '_noteFailed', (was, err) => isReadOnly(err) || was(err)),
  'late write': () => alter(Table, 'wrote', function (was, ops, ...more) {
    was(ops, ...more);
    for (const { d } of ops) d.late = 0;
    this.lateUntil = 0;
  }),
  'full memory': () => alter(Connection, 'run', async (was, script, ...more) => {
    if (script === 'full') throw new Error('OOM as before');
    return was(script, ...more);
  }),
  'late and moved': () => alter(Table, 'next', (was) => {
    const b = was();
    b.register.push(...b.heal.filter((o) => o.claim.at === null)); // not written yet, but late
    b.heal = b.heal.filter((o) => o.claim.at !== null);
    return b;
  }),
  'late registration': () => alter(Table, 'isForeign', function (was, d) { this.set(d, 'foreign'); }),
  'former life': () => alter(Replica, '_compare', async function (was) {
    if (this._ready) return was();
    [this._ready, this._scanDue, this._comparing] = [true, false, null];
  }),
  'former life, the registry': () => alter(Replica, '_compare', function (was) {
    this._ready ||= true;
    return was();
  }),
  'former life, the lease': () => alter(Connection, 'send', async (was, ...args) => (args[0] === 'SREM' ? 0 : was(...args))),
  'former primary': () => sending('register', 6, 0),
  'boot, the TTL': () => alter(Replica, '_own', function (was, ...args) {
    this._o.ttlMs += 500;
    return was(...args).finally(() => (this._o.ttlMs -= 500));
  }),
  replaced: () => running(async (was, ...args) => {
    const out = await was(...args);
    return out[0] === 'SUPERSEDED' ? ['OK', 1, 1, 0, '', 0, [], Date.now()] : out;
  }),
  'heals, one by one': () => { Table.prototype.checkShard = nothing; },
  'heals, in use': () => { Table.prototype.touch = nothing; },
  'heals, the index': () => { Table.prototype.indexDiffers = () => false; },
  'tells what is back': () => { Replica.prototype._tellReconciled = nothing; },
  'tells what is back, too early': () => getter(Table, 'restored', () => true),
  'two owners': () => { Table.prototype.compare = () => []; },
  'two owners, kept': () => alter(Table, 'lose', (was, claim, why) => claim.end(why)),
  'newer socket': () => alter(Claim, 'end', (was, why) => (why instanceof MovedError ? undefined : was(why))),
  'plain writer': () => { Table.prototype.wasAsked = nothing; },
  'plain writer, overwritten': () => running((was, script, ...more) => was(script === 'heal' ? 'register' : script, ...more)),
  'entry of nobody': () => alter(Table, 'named', function (was, id) { return this.holdings.get(id) ?? { id, state: 'forgotten' }; }),
  'over the dead': () => alter(Table, 'next', (was) => ({ ...was(), outlive: [] })),
  goodbye: () => running(async (was, script, ...more) => (script === 'goodbye' ? ['OK', 1, 1, 0, '', 0, [], 0] : was(script, ...more))),
  handshakes: () => alter(Table, 'compare', (was, other, [time, ...pairs]) => {
    const first = pairs.filter((w, i) => !seen.has(pairs[i | 1]));
    for (const word of first) seen.add(word);
    return was(other, [time, ...first]); // no second question
  }),
  'handshakes, equal': () => asked((w, i) => (i % 2 === 1 ? String(w - Math.sign(w)) : w)),
  'handshakes, to be pinged': () => asked((w, i) => (i % 2 === 1 ? w.replace('-', '') : w)),
  'handshakes, slow messages': () => { Clock.prototype.agrees = () => true; },
  'handshakes, kept': () => alter(Table, 'lose', (was, claim, why) => claim.end(why)),
  'handshakes, not confirmed': () => { Table.prototype.out = nothing; },
  'time of a handshake': () => alter(Clock, 'stamp', (was, claim) => {
    if (claim.at === null) claim.made = now(); // when it landed
    was(claim);
  }),
  'time of a handshake, the clock': () => { Clock.prototype.when = (time) => Math.round(Date.now() + time - now()); },
  'once a second': () => alter(Table, 'answer', (was, claim, owner) => {
    was(claim, owner);
    claim.said = -Infinity;
  }),
  'asked and not held': () => alter(Table, 'named', function (was, id) { return this.holdings.get(id) ?? { id, state: 'forgotten' }; }),
  'asked and not held, not compared': () => running(async function (was, script, keys, args) {
    if (script === 'release') await this.send('HDEL', keys[4], ...args.slice(8));
    return was(script, keys, args);
  }),
  pings: () => getter(Claim, 'answers', () => true),
  'pings, the dead': () => { Claim.prototype.ping = async () => {}; },
  database: () => { Replica.prototype._channel = (instance) => 'instance:heartbeat:' + instance; },
  listens: () => alter(Replica, '_beat', async function (was) {
    const ok = await was();
    this._spoke = 0;
    return ok;
  }),
  'listens, at the former primary': () => alter(Connection, 'send', function (was, ...args) {
    this.readOnly = nothing;
    return was(...args);
  }),
  words: () => asked((w, i) => (i > 0 && i % 2 === 0 ? w.replace('%25', '%') : w)), // decoded twice
  'words, as they are': () => asked((w, i) => (i > 0 && i % 2 === 0 ? w.replaceAll('%', '%25') : w)),
  'words, loosely': () => asked((w, i) => (i > 0 && i % 2 === 0 ? w.toLowerCase() : w)),
};

ways[process.env.BREAK]();
await at('test/process.mjs');
