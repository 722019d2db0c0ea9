import { randomBytes, randomInt } from 'node:crypto';
import { EventEmitter } from 'node:events';
import { hostname } from 'node:os';

import { Connection, refused } from './redis.js';
import { Table, batchSize, now, unword, word } from './table.js';

const maxKey = 1024; // bytes
const toldPrefix = '/', heardWord = 'heard';
// Their failures do not mean that Redis lost anything: if it did, the next beat finds out.
const harmless = new Set(['connection', 'listen', 'talk', 'compare']);

/** SupersededError ends an owner: a newer process has its instance id. */
export class SupersededError extends Error {
  constructor() {
    super('a newer process has this instance id: this one writes nothing more, close its sockets and exit');
    this.name = 'SupersededError';
  }
}

/** A Claim belongs to one socket, for as long as its key is registered through it. */
export class Claim {
  #owner;
  #abort = new AbortController();
  #land;
  made = now();
  heard = this.made;
  told = -Infinity;
  device = null;

  constructor(owner, key) {
    this.#owner = owner;
    this.key = key;
    this.landed = new Promise((resolve, reject) => (this.#land = { resolve, reject }));
    this.landed.catch(() => {}); // nobody has to wait for it
  }

  /** signal aborts when the same key opens a newer socket on this owner: close this one. */
  get signal() { return this.#abort.signal; }

  /** received records that something of the other side arrived through this socket. */
  received() { this.#owner.table.frameReceived(this); }

  /** acked records that this side has answered what arrived. */
  acked() { this.#owner.table.frameAcked(this); }

  /** release hands the key back. Only the newest claim of a key has its entry taken out. */
  release() { this.end(new Error('the claim was released')); this.#owner.table.release(this); }

  land() { this.#land.resolve(); }
  end(err) { this.#land.reject(err); }
  supersede() { this.end(new Error('the claim was superseded')); this.#abort.abort(); }
}

/** An Owner keeps the entries of this process's sockets in the registry true. See ../index.d.ts. */
export class Owner extends EventEmitter {
  #o;
  #data;
  #control;
  #subscriber = null;
  #boot = '';
  #random;
  #lost = null; // '': there was no witness
  #surprise = false;
  #unheard = false; // an answer was lost, and with it perhaps the only sign that Redis lost something
  #compared = -Infinity;
  #owed = false; // the event reconciled
  #reconciled = -Infinity;
  #lastBeat = -Infinity;
  #ready = false; // the former life was handed back
  #scanDue = true;
  #pass = 0;
  #over = false;
  #pumping = null;
  #timer = null;
  #ticking = null;
  #comparing = null;
  #starting = null;
  #stopping = null;
  #failing = new Map();
  #end;

  constructor(options) {
    super();
    const o = { prefix: '', interval: 30_000, ttl: 90_000, drain: 10_000, ...options };
    o.unique = o.instance === undefined;
    o.instance ??= `${hostname().slice(0, 64)}-${randomBytes(4).toString('hex')}`;
    check(o);
    this.#o = o;
    this.#random = String(randomInt(2 ** 48 - 1) % 1e10).padStart(10, '0');
    this.instance = o.instance;
    const changed = (err) => {
      if (err) this.#fail('connection', err);
      else if (this.#data.up && this.#control.up) this.#recovered('connection');
    };
    this.#data = new Connection(o.redis, o.interval, changed);
    this.#control = new Connection(o.redis, o.interval, changed);
    this.table = new Table(o.instance, o.interval, o.ttl);
    this.table.wake = () => this.#pump();
    this.table.talk = () => setImmediate(() => this.#talk());
    this.ended = new Promise((resolve, reject) => (this.#end = { resolve, reject }));
    this.ended.catch(() => {}); // also an event
  }

  /** emit throws what a listener throws outside of the owner, whose beats would end with it. */
  emit(event, ...args) {
    try {
      return super.emit(event, ...args);
    } catch (err) {
      process.nextTick(() => { throw err; });
      return true;
    }
  }

  #key(name) { return this.#o.prefix + name; }
  #heartbeat(instance) { return this.#key('instance:heartbeat:' + instance); }

  /** start draws the boot token and begins to beat. It returns after the first attempt, reached or not. */
  start() {
    return (this.#starting ??= this.#start());
  }

  async #start() {
    await Promise.all([this.#data.open(), this.#control.open(), this.#listen()]);
    let due = 0, turn = 0;
    const tick = async () => {
      if (now() >= due) {
        const at = now();
        if (await this.#beat()) {
          due = at + this.#o.interval - this.#o.interval / 20;
          this.table.checkShard(turn++);
        }
      }
      this.table.retry();
      if (this.table.pending === 0) for (const what of ['register', 'release', 'heal', 'check']) this.#recovered(what);
      this.#reconcileAll();
      this.#tellReconciled();
      this.#listen();
      if (this.#scanDue && this.#boot) this.#comparing ??= this.#compare().finally(() => (this.#comparing = null));
    };
    const loop = async () => {
      if (!this.#over) await (this.#ticking = tick());
      if (!this.#over) this.#timer = setTimeout(loop, this.#o.interval / 10);
    };
    await loop();
    await this.#comparing; // beats do not wait for it
  }

  /** register claims a key for this owner. It never fails and never waits; the newest claim wins. */
  register(key) {
    const claim = new Claim(this, name(key));
    const over = this.#over || this.#stopping;
    if (over || Buffer.byteLength(claim.key) > maxKey) {
      claim.device = {};
      claim.end(new Error(over ? 'the owner has ended' : `a key may have ${maxKey} bytes`));
      if (!over) this.#fail('register', new Error(`a key may have ${maxKey} bytes`));
      return claim;
    }
    this.table.register(claim, claim.key)?.supersede();
    return claim;
  }

  /** unregister releases the newest claim of a key. */
  unregister(key) {
    this.table.devices.get(name(key))?.claim?.release();
  }

  /** unregisterAll releases every claim, and resolves when Redis has it or `drain` has passed. */
  async unregisterAll() {
    for (const { claim } of [...this.table.devices.values()]) claim?.release();
    const until = now() + this.#o.drain;
    while (this.table.pending > 0 && this.#boot && !this.#over && now() < until) {
      await Promise.race([this.#pump(), sleep(50)]);
      if (this.table.pending > 0) await sleep(Math.min(50, this.#o.interval / 10));
    }
  }

  /** heartbeat beats now, and resolves with whether the beat landed. */
  heartbeat() { return this.#beat(); }

  /** lookup returns who holds a key and whether that owner lives; null if nobody holds it. */
  async lookup(key) {
    const found = await this.#data.run('lookup', [this.#key('connections:registry')], [key, this.#heartbeat('')]);
    return found ? { owner: found[0], alive: Number(found[1]) === 1 } : null;
  }

  /** status reports what this owner holds and what fails. */
  status() {
    const { held, pending, count } = this.table;
    return { instance: this.instance, held, pending, standing: count.standing, failing: Object.fromEntries(this.#failing) };
  }

  /** stop releases every claim, says goodbye and closes the connections. */
  stop() {
    return (this.#stopping ??= this.#stop());
  }

  async #stop() {
    if (this.#over) return;
    await this.unregisterAll();
    clearTimeout(this.#timer);
    this.#over = true;
    await Promise.allSettled([this.#ticking, this.#pumping, this.#comparing]);
    if (this.#boot) await this.#own(this.#control, 'goodbye', [this.table.pending]).catch((err) => this.#fail('goodbye', err));
    this.#close();
    this.#end.resolve();
  }

  #close() {
    this.#over = true;
    clearTimeout(this.#timer);
    for (const c of [this.#data, this.#control, this.#subscriber]) c?.close();
    for (const { claim } of this.table.devices.values()) claim?.end(new Error('the owner has ended'));
  }

  /** own runs a script of the owner and returns its reply. */
  async #own(connection, name, args = [], dead = []) {
    const k = (n) => this.#key(n), id = this.instance;
    const keys = [this.#heartbeat(id), k('instances:roster'), k('instance:devices:' + id), k('janitor:witness'), k('connections:registry')];
    const out = await connection.run(name, [...keys, ...dead], [id, this.#boot, this.#o.ttl, '1', ...args]).catch((err) => {
      this.#unheard ||= !refused(err);
      throw err;
    });
    if (out[0] === 'SUPERSEDED') throw new SupersededError();
    const foreign = new Map();
    for (let i = 0; i < out[6].length; i += 2) foreign.set(out[6][i], out[6][i + 1]);
    const [absent, size, gone, count] = [out[1], out[2], out[4], out[5]].map(Number);
    return { absent: absent === 1, size, lost: out[3], gone: gone === 1, count, foreign };
  }

  get #grace() { return this.#o.ttl + 2000; }

  async #beat() {
    const before = this.table.batches;
    try {
      if (!this.#boot) {
        await this.#drawBoot();
        return true;
      }
      let got;
      try {
        got = await this.#own(this.#control, 'beat', [this.#grace, '0']);
      } catch (err) {
        if (!String(err.message).startsWith('OOM')) throw err;
        got = await this.#own(this.#control, 'extend'); // memory is full: PEXPIRE still works
        if (got.count === 0) throw new Error('OOM and no heartbeat left to extend');
      }
      this.#lastBeat = now();
      if (before % 2 === 1 || before !== this.table.batches) Object.assign(got, { size: this.table.indexed, gone: false });
      this.#read(got);
      this.#recovered('heartbeat');
      return true;
    } catch (err) {
      this.#fail('heartbeat', err);
      return false;
    }
  }

  async #drawBoot() {
    const keys = [this.#heartbeat(this.instance), this.#key('instances:roster'), this.#key('janitor:witness')];
    const boot = await this.#control.run('boot', keys, [this.instance, this.#random, this.#o.ttl, this.#grace]);
    const same = await this.#data.run('same', keys.slice(0, 1), [boot]);
    if (same === 'SUPERSEDED') throw new SupersededError();
    if (same !== 'OK') throw new Error('the two connections are not at the same primary and database');
    this.#boot = boot;
    this.#lastBeat = now();
    this.#recovered('heartbeat');
    this.#pump();
  }

  /** read takes a reply: any sign that Redis lost something has everything checked. */
  #read(got) {
    const held = this.#lost !== null && got.lost !== this.#lost;
    this.#lost = got.lost;
    if (got.absent || held || (got.gone && this.table.count.standing > 0) || this.#unheard) this.#surprise = true;
    this.#unheard = false;
    this.#reconcileAll();
    if (this.#ready && this.table.indexDiffers(got.size)) this.#scanDue = true;
  }

  #reconcileAll() {
    if (!this.#surprise || now() - this.#compared < this.#o.interval) return;
    this.#surprise = false;
    this.#compared = now();
    this.emit('reconciling');
    this.table.checkAll();
    this.#owed = this.#scanDue = true;
  }

  #tellReconciled() {
    const due = this.#owed && this.table.restored && !this.#over && !this.#failing.has('heartbeat');
    if (!due || now() - this.#reconciled < this.#o.interval) return;
    this.#owed = false;
    this.#reconciled = now();
    this.emit('reconciled');
  }

  /** pump writes batch after batch, one at a time. */
  #pump() {
    if (!this.#boot || this.#over) return this.#pumping;
    return (this.#pumping ??= this.#write());
  }

  async #write() {
    await null; // what registers in the same turn shares a batch
    while (!this.#over && this.table.urgent.size + this.table.checks.size > 0) {
      const b = this.table.next();
      let failed = null;
      const steps = [['register', b.register], ['release', b.release], ['heal', b.heal], ['heal', b.outlive]];
      for (const [name, ops] of steps) failed = (await this.#step(name, this.table.wanted(ops))) ?? failed;
      failed = (await this.#check(b.check)) ?? failed;
      this.table.ended(failed !== null);
      this.#tellDisplaced();
      this.#tellReconciled();
      if (failed && !this.#over) await sleep(Math.min(this.#o.interval / 10, 1000));
    }
    this.#pumping = null; // at once: nothing would write what is queued in between
  }

  async #step(name, ops) {
    if (ops.length === 0 || this.#over) return null;
    const args = ops.flatMap((o) => (name === 'heal' ? [o.d.key, o.seen ?? o.dead ?? ''] : [o.d.key]));
    let dead = [];
    if (ops[0].dead) {
      dead = [...new Set(ops.map((o) => this.#heartbeat(o.dead)))];
      args.push((this.#o.ttl - this.#o.interval) / 2, this.#grace, now() - this.#lastBeat < this.#o.ttl / 2 ? '1' : '0');
    }
    try {
      const got = await this.#own(this.#data, name, args, dead);
      if (dead.length > 0 && got.count < 0) this.table.notYet(ops);
      else this.table.wrote(ops, got, null);
      if (name === 'heal' && got.count > 0) {
        this.#owed = true;
        this.emit('healed', got.count);
      }
      this.#recovered(name);
      this.#read(got);
      return null;
    } catch (err) {
      this.table.wrote(ops, null, err);
      this.#fail(name, err);
      return err;
    }
  }

  async #check(ops) {
    if (ops.length === 0 || this.#over) return null;
    try {
      const found = await this.#data.send('HMGET', this.#key('connections:registry'), ...ops.map((o) => o.d.key));
      this.table.checked(ops, found, null);
      this.#recovered('check');
      return null;
    } catch (err) {
      this.table.checked(ops, null, err);
      this.#fail('check', err);
      return err;
    }
  }

  /** compare compares the index with the claims, and at first the registry with a former life's. */
  async #compare() {
    this.#scanDue = false;
    const pass = ++this.#pass, begun = this.table.batches;
    try {
      for await (const members of this.#scan('SSCAN', 'instance:devices:' + this.instance)) {
        for (const key of members) this.table.named(key, pass);
      }
      this.table.compareIndex(pass, begun);
      if (!this.#ready && !this.#o.unique) {
        for await (const entries of this.#scan('HSCAN', 'connections:registry')) {
          for (let i = 0; i < entries.length; i += 2) if (entries[i + 1] === this.instance) this.table.named(entries[i], 0);
        }
      }
      this.#ready = true;
      this.#recovered('compare');
    } catch (err) {
      this.#scanDue = true;
      this.#fail('compare', err);
    }
  }

  async *#scan(command, name) {
    let cursor = '0';
    do {
      const [next, page] = await this.#data.send(command, this.#key(name), cursor, 'COUNT', 1000);
      yield page;
      cursor = String(next);
    } while (cursor !== '0' && !this.#over);
  }

  /** listen begins to listen once somebody wants to be told. */
  async #listen() {
    if (this.#over || this.#subscriber || this.listenerCount('displaced') === 0) return;
    const changed = (err) => (err ? this.#fail('listen', err) : this.#recovered('listen'));
    this.#subscriber = new Connection(this.#o.redis, this.#o.interval, changed,
      this.#heartbeat(this.instance), (message) => this.#told(message.split(' ')));
    await this.#subscriber.open();
  }

  #told([first, ...rest]) {
    if (!first.startsWith(toldPrefix)) {
      for (const w of [first, ...rest]) this.table.checkStanding(unword(w));
      return;
    }
    const other = first.slice(toldPrefix.length);
    if (rest[0] === heardWord) return void this.table.wasHeard(other, rest.slice(1));
    this.table.compare(other, rest);
    this.#tellDisplaced();
    this.#talk();
  }

  /** talk asks other owners about keys in dispute, and answers them. A lost message is sent again. */
  async #talk() {
    if (this.#over) return;
    const asks = this.table.takeAsks(), heard = this.table.heard;
    this.table.heard = new Map();
    try {
      for (const [other, words] of heard) {
        for (const some of chunks(words)) await this.#tell(other, `${toldPrefix}${this.instance} ${heardWord} ${some.join(' ')}`);
      }
      for (const [other, devices] of asks) {
        for (const some of chunks(devices.filter((d) => d.claim))) {
          const ages = some.map((d) => `${Math.floor(now() - d.claim.heard)} ${word(d.key)}`);
          const { listens, lives } = await this.#tell(other, `${toldPrefix}${this.instance} ${ages.join(' ')}`);
          this.table.asked(other, some, listens, lives);
        }
      }
    } catch (err) {
      this.#fail('talk', err);
    }
    this.#tellDisplaced();
  }

  async #tell(other, message) {
    const channel = this.#heartbeat(other);
    const listeners = await this.#control.send('PUBLISH', channel, message).catch((err) => {
      if (refused(err)) return 0; // not allowed: nobody hears
      throw err;
    });
    const lives = Number(await this.#control.send('EXISTS', channel)) > 0;
    this.#recovered('talk');
    return { listens: Number(listeners) > 0, lives };
  }

  #tellDisplaced() {
    for (const d of this.table.displaced.splice(0)) this.emit('displaced', d);
  }

  #fail(what, err) {
    if (err instanceof SupersededError) {
      if (this.#over) return;
      this.#close();
      this.#end.reject(err);
      this.emit('superseded', err);
      return;
    }
    if (this.#over) return;
    if (!harmless.has(what)) this.#owed = true;
    const first = !this.#failing.has(what);
    this.#failing.set(what, err.message);
    if (first) this.emit('failing', what, err);
  }

  #recovered(what) {
    if (this.#failing.delete(what)) this.emit('recovered', what);
  }
}

/** name is a key as Redis has it: in UTF-8, all lone surrogates are the same. */
function name(key) {
  return String(key).toWellFormed();
}

function check(o) {
  const id = o.instance, ms = (v) => Number.isFinite(v) && v > 0;
  if (typeof id !== 'string' || Buffer.byteLength(id) > 200 || !/^[^\s/\p{C}]+$/u.test(id)) {
    throw new TypeError(`instance: expected up to 200 bytes of printable characters without spaces and '/', got ${JSON.stringify(id)}`);
  }
  if (!ms(o.interval) || !ms(o.ttl) || o.ttl < 3 * o.interval || o.ttl > 86_400_000) {
    throw new TypeError(`ttl: expected at least three times interval and at most a day, in ms, got ttl ${o.ttl}, interval ${o.interval}`);
  }
}

function* chunks(list) {
  for (let i = 0; i < list.length; i += batchSize) yield list.slice(i, i + batchSize);
}

function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
