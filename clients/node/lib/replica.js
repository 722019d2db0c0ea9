import { randomInt } from 'node:crypto';

import { Claim, MovedError, NoAnswerError, ReplacedError, StoppingError, TakenError } from './claim.js';
import { now } from './clock.js';
import { Directory, Reader, chunks } from './directory.js';
import { longestID, name, settings } from './options.js';
import { Connection, answered, bounded, callTimeout, isReadOnly, refused, tag } from './redis.js';
import { Table, word } from './table.js';

export { Claim, MovedError, NoAnswerError, Reader, ReplacedError, StoppingError, TakenError };

const toldPrefix = '/', heardWord = 'heard', deafAfter = 1000; // ms that a beat's message to its own owner may take
// Their failures do not mean that Redis lost anything: if it did, the next beat finds out.
const harmless = new Set(['connection', 'listen', 'talk', 'compare', 'keep', 'notify']);
// Bits in a beat's reply: what this user may not do and scripts silently omit; see registry/beat.lua.
const rights = [
  [1, 'keep', 'NOPERM this user may not run SADD, SREM, HGET and HSET on the roster, the index and the records'],
  [2, 'notify', "NOPERM this user may not PUBLISH on the channels of heartbeats' names"],
];

/**
 * A Replica keeps the entries of this process's sockets in the registry true. See ../index.d.ts. What begins
 * with _ is not for its users.
 */
export class Replica extends Directory {
  _boot = '';
  _random = String(randomInt(1e10)).padStart(10, '0');
  _lost = null; // '': there was no witness
  _surprise = false;
  _unheard = false; // an answer was lost, and with it perhaps the only sign that Redis lost something
  _compared = -Infinity;
  _spoke = 0; // when a beat was sent whose message should arrive here
  _heard = 0; // when the last one did
  _deaf = false; // it had not a moment ago
  _owed = false; // the event reconciled
  _reconciled = -Infinity;
  _ready = false; // the former life was handed back
  _scanDue = true;
  _scanAt = -Infinity; // not before
  _over = false;
  _pumping = null;
  _comparing = null;
  _failing = new Map();

  constructor(options) {
    const o = settings(options), { instance, intervalMs } = o;
    super(o, new Connection(o.redis, intervalMs));
    this.instance = instance;
    this._control = new Connection(o.redis, intervalMs);
    // A beat without an answer must leave time for the next one.
    this._control.patience = Math.max(Math.min(intervalMs / 2, callTimeout), 500);
    this._subscriber = new Connection(o.redis, intervalMs, this._channel(instance), (message) => this._told(message.split(' ')));
    this._subscriber.changed = (err) => (err ? this._fail('listen', err) : this._recovered('listen'));
    for (const c of [this._data, this._control]) {
      c.changed = (err) => {
        if (err) this._fail('connection', err);
        else if (this._data.client && this._control.client) this._recovered('connection');
      };
      // The primary has become a replica, and its name may lead to the new one. What it remembers proves
      // nothing: no connection may stay.
      c.readOnly = (err) => { for (const each of this._connections) each.lose(err); };
    }
    this.table = new Table(instance, intervalMs, o.ttlMs);
    this.table.wake = () => this._pump();
    this.table.talk = () => setImmediate(() => this._talk());
    this._ended = new Promise((resolve, reject) => (this._end = { resolve, reject }));
    this._ended.catch(() => {}); // nobody has to call run
  }

  get _connections() { return [this._data, this._control, this._subscriber]; }
  _channel(instance) { return tag(this._o.redis) + this._heartbeat(instance); }

  /** say emits an event, whose listeners throw outside of the replica: its beats would end. */
  _say(event, ...args) { queueMicrotask(() => this.emit(event, ...args)); }

  async run(signal) {
    const stop = () => this.stop();
    if (signal?.aborted) stop();
    signal?.addEventListener('abort', stop);
    await this.start();
    return this._ended;
  }

  start() { return (this._starting ??= this._start()); }

  async _start() {
    await Promise.all(this._connections.map((c) => c.open()));
    let due = 0, turn = 0;
    const { table } = this, { intervalMs } = this._o;
    const tick = async () => {
      const at = now();
      if (at >= due && (await this._beat())) {
        due = at + intervalMs - intervalMs / 20;
        table.checkShard(turn++);
      }
      table.retry();
      const was = this._deaf; // if the event loop was blocked, the message may wait
      this._deaf = this._spoke > this._heard && at - this._spoke > deafAfter;
      if (was && this._deaf) {
        this._spoke = this._heard; // until the next beat
        this._subscriber.lose(new Error('messages do not arrive'));
      }
      if (table.pending === 0) for (const what of ['register', 'release', 'check']) this._recovered(what);
      if (table.healed) this._recovered('heal'); // disputes may last
      this._reconcileAll();
      this._tellReconciled();
      if (this._boot && this._scanDue && !this._comparing && at >= this._scanAt) {
        this._scanAt = at + intervalMs;
        this._comparing = this._compare();
      }
    };
    const loop = async () => {
      if (!this._over) await (this._ticking = tick());
      if (!this._over) this._timer = setTimeout(loop, intervalMs / 10);
    };
    await loop();
    await this._comparing; // beats do not wait for it
  }

  register(id, socket) {
    if (typeof socket?.close !== 'function') throw new TypeError('register(id, socket): socket.close must be a function');
    const claim = new Claim(this.table, name(id), socket);
    if (this._over || this._stopping) {
      claim.end(new StoppingError('this replica stops'));
    } else if (Buffer.byteLength(claim.id) > longestID) {
      const err = new Error('an id may have ' + longestID + ' bytes');
      claim.end(err);
      this._fail('register', err);
    } else {
      this.table.register(claim);
    }
    return claim;
  }

  status() {
    const { held, pending } = this.table, failing = {};
    for (const [what, err] of this._failing) failing[what] = err.message;
    return { instance: this.instance, held, pending, failing };
  }

  stop() { return (this._stopping ??= this._stop()); }

  async _stop() {
    if (!this._over) await bounded(this._leave(), this._o.drainMs).catch(() => {});
    this._close();
    this._end.resolve();
  }

  async _leave() {
    const { table } = this, { drainMs } = this._o, end = now() + drainMs, claims = () => [...table.holdings.values()].map((d) => d.claim);
    // Evenly over half of that time, so that a fleet of clients does not connect again at one instant.
    const step = Math.max(drainMs / 100, 1);
    for (let left = drainMs / 2; !this._over; left = end - drainMs / 2 - now()) {
      const open = claims().filter((claim) => claim && !claim.signal.aborted);
      if (open.length === 0) break;
      for (const claim of open.slice(0, Math.ceil((open.length * step) / Math.max(left, step)))) {
        claim.end(new StoppingError('this replica stops'));
      }
      if (open.length > 1) await sleep(step);
    }
    for (const claim of claims()) claim?.release();
    while (table.pending > 0 && this._boot && !this._over && now() < end - drainMs / 10) await sleep(this._pause / 5);
    clearTimeout(this._timer);
    this._over = true;
    await Promise.allSettled([this._ticking, this._pumping, this._comparing]);
    while (this._boot && now() < end) { // after that the heartbeat expires by itself
      const err = await this._own(this._control, 'goodbye', [table.pending]).catch((reason) => reason);
      if (!(err instanceof Error) || err instanceof ReplacedError) return;
      await sleep(this._pause);
    }
  }

  get _pause() { return Math.min(this._o.intervalMs / 10, 1000); }

  _close(why = new StoppingError('this replica stops')) {
    this._over = true;
    clearTimeout(this._timer);
    for (const c of this._connections) c.close();
    for (const { claim } of this.table.holdings.values()) claim?.end(why);
  }

  /** own runs a script of the owner and returns its reply: see registry/record.lua. */
  async _own(connection, script, args = [], dead = [], boot = this._boot) {
    const { instance, table } = this, { ttlMs, intervalMs, redis } = this._o;
    const keys = ['instance:heartbeat:' + instance, 'instances:roster', 'instance:devices:' + instance,
      'janitor:witness', 'connections:registry', 'janitor:beats'].map((key) => this._key(key));
    const newest = connection === this._control ? 0 : this._newest; // beats repair what is checked elsewhere
    const common = [instance, boot, ttlMs, '1', intervalMs, table.held > 0 ? 'h' : 'i', newest, tag(redis)];
    const sent = now(), out = await connection.run(script, [...keys, ...dead], [...common, ...args]).catch((err) => {
      this._noteFailed(err);
      throw err;
    });
    if (script === 'boot') return out;
    if (out[0] === 'SUPERSEDED') throw new ReplacedError('a newer process has this instance id: this one must exit');
    table.clock.read(Number(out[7]), sent, now());
    const foreign = new Map();
    for (let i = 0; i < out[6].length; i += 2) foreign.set(out[6][i], out[6][i + 1]);
    const [found, last, size, count] = [out[1], out[2], out[3], out[5]].map(Number);
    return { found, last, size, lost: out[4], count, foreign };
  }

  /** An answer may have been the only sign of a loss; a server that takes no writes was replaced by one that may lack some. */
  _noteFailed(err) { this._unheard ||= !answered(err) || isReadOnly(err); }

  /** attempt returns null, or the error with which an operation failed. */
  async _attempt(what, operation) {
    try {
      await operation();
      this._recovered(what);
      return null;
    } catch (err) {
      this._fail(what, err);
      return err;
    }
  }

  async _beat() {
    return !this._over && null === (await this._attempt('heartbeat', async () => {
      const { table } = this, before = table.batches, grace = this._o.ttlMs + 2000, sent = now();
      if (!this._boot) return this._drawBoot(grace);
      const args = [grace, table.count.standing > 0 && before % 2 === 0 ? '1' : '0'];
      const got = await this._own(this._control, 'beat', args).catch((err) => {
        if (!String(err.message).startsWith('OOM')) throw err;
        return this._own(this._control, 'full', args); // memory is full
      });
      for (const [bit, what, text] of rights) {
        if (got.count & bit) this._fail(what, new Error(text));
        else this._recovered(what);
      }
      if (!(got.count & 2) && this._spoke <= this._heard) this._spoke = sent;
      if (before % 2 === 1 || before !== table.batches) got.size = table.indexed;
      if (got.found < this._newest) got.found = 0; // the server was set back
      this._newest = got.last;
      this._read(got);
    }));
  }

  async _drawBoot(grace) {
    const [boot, newest] = await this._own(this._control, 'boot', [this._random, grace], [], '');
    // Does the other connection see that heartbeat, and may it write there? It reads the clock, before anybody asks.
    await this._own(this._data, 'here', [], [], boot);
    if (!this._o.unique) { // a former life may have contended for the lease
      await this._control.send('SREM', this._key('janitor:contenders'), this.instance).catch((err) => {
        if (!answered(err)) throw err;
      });
    }
    this._boot = boot;
    this._newest = Number(newest);
    this._pump();
  }

  /** read takes a reply: any sign that Redis lost something has everything checked. */
  _read(got) {
    const absent = got.found === 0 || got.last - got.found >= this._o.ttlMs; // others could take this owner for dead
    const told = this._lost !== null && got.lost && got.lost !== this._lost;
    this._lost = got.lost || this._lost || '';
    if (absent || told || this._unheard) this._surprise = true;
    this._unheard = false;
    this._reconcileAll();
    if (this._ready && this.table.indexDiffers(got.size)) this._scanDue = true;
  }

  _reconcileAll() {
    if (!this._surprise || now() - this._compared < this._o.intervalMs) return;
    this._surprise = false;
    this._compared = now();
    this._scanAt = -Infinity;
    this.table.checkAll();
    this._owed = this._scanDue = true;
  }

  _tellReconciled() {
    const due = this._owed && this.table.restored && !this._over && !this._failing.has('heartbeat');
    if (!due || now() - this._reconciled < this._o.intervalMs) return;
    this._owed = false;
    this._reconciled = now();
    this._say('reconciled');
  }

  /** pump writes batch after batch, one at a time. */
  _pump() {
    if (this._boot && !this._over) this._pumping ??= this._write();
  }

  async _write() {
    const { table } = this;
    await null; // what registers in the same turn shares a batch
    while (!this._over && table.urgent.size + table.checks.size > 0) {
      const b = table.next();
      let failed = null;
      for (const [script, ops] of [['register', b.register], ['release', b.release], ['heal', b.heal], ['heal', b.outlive]]) {
        failed = (await this._step(script, table.wanted(ops))) ?? failed;
      }
      failed = (await this._check(b.check)) ?? failed;
      table.ended(failed !== null);
      this._tellReconciled();
      if (failed && !this._over) await sleep(this._pause);
    }
    this._pumping = null; // at once: nothing would write what is queued in between
  }

  async _step(script, ops) {
    if (ops.length === 0 || this._over) return null;
    const { table } = this, args = ops.map((o) => o.d.id), dead = new Set();
    if (ops[0].dead) {
      for (const o of ops) dead.add(this._heartbeat(o.dead));
      args.push(Math.floor((this._o.ttlMs - this._o.intervalMs) / 2));
    }
    const err = await this._attempt(script, async () => {
      const got = await this._own(this._data, script, args, dead);
      if (dead.size > 0 && got.count < 0) table.notYet(ops);
      else table.wrote(ops, got, null);
      if (script === 'heal') this._recovered('register'); // healing retries failed registrations
      if (script === 'heal' && got.count > 0) {
        this._owed = true;
        this._say('healed', got.count);
      }
      this._read(got);
    });
    if (err) table.wrote(ops, null, err);
    return err;
  }

  async _check(ops) {
    if (ops.length === 0 || this._over) return null;
    const err = await this._attempt('check', async () => {
      const [found] = await this._ask(ops.map((o) => o.d.id));
      this.table.checked(ops, found);
    });
    if (!err) return null;
    this._noteFailed(err);
    this.table.unchecked(ops);
    return err;
  }

  /** compare compares the index with the claims, and at first the registry with a former life's. */
  async _compare() {
    const { table } = this, begun = table.batches, members = new Set();
    this._scanDue = false;
    const err = await this._attempt('compare', async () => {
      const broken = await this._index(members).then(() => table.compareIndex(members, begun), (reason) => reason);
      if (broken && !/^-?WRONGTYPE /.test(broken.message)) throw broken;
      if (!this._ready && !this._o.unique) {
        for await (const entries of this._scan('HSCAN', 'connections:registry')) {
          for (let i = 0; i < entries.length; i += 2) if (entries[i + 1] === this.instance) table.named(entries[i]);
        }
      }
      this._ready = true;
      if (broken) throw broken;
    });
    if (err) this._scanDue = true;
    this._comparing = null;
  }

  async _index(members) {
    for await (const some of this._scan('SSCAN', 'instance:devices:' + this.instance)) {
      for (const id of some) {
        members.add(id);
        this.table.named(id);
      }
    }
  }

  _told([first, ...rest]) {
    if (!first.startsWith(toldPrefix)) return void this.table.noticed('', [first, ...rest]);
    if (rest.length === 0) return void (this._heard = now()); // a beat of this owner
    const other = first.slice(toldPrefix.length);
    if (rest[0] === heardWord) return void this.table.noticed(other, rest.slice(1));
    for (const claim of this.table.compare(other, rest)) this._ping(claim, other);
  }

  /** ping finds out whether the newer socket is there, before the older one is closed for it. */
  async _ping(claim, other) {
    const err = await claim.ping().catch((reason) => reason);
    if (claim.holding.claim !== claim) return;
    if (!err) return void this.table.answer(claim, other);
    this.table.lose(claim, new NoAnswerError('the socket did not answer a ping', { cause: err }));
    this.table.yield(claim.holding, other);
  }

  /** talk asks other owners about ids in dispute, and answers them. A lost message is sent again. */
  async _talk() {
    if (this._over) return;
    const { table } = this, { asks, heard, clock } = table;
    [table.asks, table.heard] = [new Map(), new Map()];
    await this._attempt('talk', async () => {
      for (const [other, words] of heard) for (const some of chunks(words)) await this._tell(other, heardWord, ...some);
      for (const [other, claims] of asks) {
        for (const few of chunks(claims)) {
          const some = few.filter((c) => c.holding.claim === c); // some have ended since the last message
          if (some.length === 0) continue;
          const left = await this._tell(other, clock.when(now()), ...some.flatMap((c) => [clock.handshake(c) * (c.answers ? 1 : -1), word(c.id)]));
          table.wasAsked(other, some, left);
        }
      }
    });
  }

  /** tell publishes to another owner, and returns what PTTL says of its heartbeat. */
  async _tell(other, ...words) {
    await this._control.send('PUBLISH', this._channel(other), [toldPrefix + this.instance, ...words].join(' '));
    return Number(await this._control.send('PTTL', this._heartbeat(other)));
  }

  _fail(what, err) {
    if (this._over) return;
    if (err instanceof ReplacedError) {
      this._close(err);
      return this._end.reject(err);
    }
    if (!harmless.has(what)) this._owed = true;
    const was = this._failing.get(what), lasts = (e) => refused.test((e.cause ?? e).message);
    this._failing.set(what, err);
    if (!was || (lasts(err) && !lasts(was))) this._say('failing', what, err); // somebody has to act on it
  }

  _recovered(what) {
    if (this._failing.delete(what)) this._say('recovered', what);
  }
}

function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
