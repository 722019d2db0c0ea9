import { randomInt } from 'node:crypto';
import { EventEmitter } from 'node:events';

import { Claim, MovedError, NoAnswerError, StoppingError, TakenError } from './claim.js';
import { complete, maxKey, name } from './options.js';
import { Connection, answered, callTimeout, isReadOnly, refused, tag } from './redis.js';
import { Table, batchSize, now, word } from './table.js';

export { Claim, MovedError, NoAnswerError, StoppingError, TakenError };

const toldPrefix = '/', heardWord = 'heard';
// Their failures do not mean that Redis lost anything: if it did, the next beat finds out.
const harmless = new Set(['connection', 'listen', 'talk', 'compare', 'keep', 'notify']);
// Bits in a beat's reply: what this user may not do and scripts silently omit; see ../lua/beat.lua.
const rights = {
  keep: [1, 'NOPERM this user may not run SADD, SREM, HGET and HSET on the roster, the index and the records'],
  notify: [2, "NOPERM this user may not PUBLISH on the channels of heartbeats' names"],
};

/** ReplacedError ends an owner, and its claims: a newer process has its instance id. */
export class ReplacedError extends Error {
  constructor() {
    super('a newer process has this instance id: this one writes nothing more and must exit');
    this.name = 'ReplacedError';
  }
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
  #newest = 0; // when the newest beat was written, in ms by the server's clock; 0: unknown
  #ready = false; // the former life was handed back
  #scanDue = true;
  #scanAt = -Infinity; // not before
  #scanPause = 0; // after the last one; grows while a difference or a failure lasts
  #pass = 0;
  #over = false;
  #pumping = null;
  #timer = null;
  #ticking = null;
  #comparing = null;
  #starting = null;
  #stopping = null;
  #failing = new Map();
  #toldRefusal = new Set();
  #end;

  constructor(options) {
    super();
    const o = (this.#o = complete(options));
    this.#random = String(randomInt(2 ** 48 - 1) % 1e10).padStart(10, '0');
    this.instance = o.instance;
    const changed = (err) => {
      if (err) this.#fail('connection', err);
      else if (this.#data.up && this.#control.up) this.#recovered('connection');
    };
    // The primary has become a replica, and its name may lead to the new one. What it remembers proves
    // nothing: no connection may stay.
    const onReadOnly = (err) => { for (const c of [this.#data, this.#control, this.#subscriber]) c?.leave(err); };
    this.#data = new Connection(o.redis, o.interval, changed, { onReadOnly });
    // A beat without an answer must leave time for the next one.
    const patience = Math.max(Math.min(o.interval / 2, callTimeout), 500);
    this.#control = new Connection(o.redis, o.interval, changed, { patience, onReadOnly });
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
  #channel(instance) { return tag(this.#o.redis) + this.#heartbeat(instance); }
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
      if (this.table.pending === 0) for (const what of ['register', 'release', 'check']) this.#recovered(what);
      if (this.table.healed) this.#recovered('heal'); // disputes may last
      this.#reconcileAll();
      this.#tellReconciled();
      this.#compareWhenDue();
    };
    const loop = async () => {
      if (!this.#over) await (this.#ticking = tick());
      if (!this.#over) this.#timer = setTimeout(loop, this.#o.interval / 10);
    };
    await loop();
    await this.#comparing; // beats do not wait for it
  }

  /** register claims a key for a socket, and never waits. The newest handshake wins; this call is it. */
  register(key, socket) {
    if (typeof socket?.close !== 'function') throw new TypeError('register(key, socket): socket.close must be a function');
    const claim = new Claim(this, name(key), socket);
    if (this.#over || this.#stopping) {
      claim.end(new StoppingError());
    } else if (Buffer.byteLength(claim.key) > maxKey) {
      const err = new Error(`a key may have ${maxKey} bytes`);
      claim.end(err);
      this.#fail('register', err);
    } else {
      this.table.register(claim, claim.key);
    }
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
  async heartbeat() { return !this.#over && this.#beat(); }

  /** lookup returns who holds a key and whether that owner lives; null if nobody holds it. */
  async lookup(key) {
    const [[owner], , [alive]] = await this.#ask([key], this.#heartbeat(''));
    return owner === null ? null : { owner, alive: Number(alive) === 1 };
  }

  /** ask reads the entries of keys and, with the prefix of heartbeats, whether their owners live. */
  #ask(keys, heartbeats = '') {
    const names = [this.#key('connections:registry'), this.#key('janitor:beats')];
    return this.#data.run('lookup', names, [this.instance, this.#newest, heartbeats, '0', ...keys]);
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
    await this.#closeSockets();
    await this.unregisterAll();
    clearTimeout(this.#timer);
    this.#over = true;
    await Promise.allSettled([this.#ticking, this.#pumping, this.#comparing]);
    await this.#goodbye();
    this.#close();
    this.#end.resolve();
  }

  /** closeSockets closes all sockets within half of `drain`, so that a fleet of clients does not connect again at one instant. */
  async #closeSockets() {
    for (let left = 50; left > 0 && !this.#over; left--) {
      const open = [...this.table.devices.values()].map((d) => d.claim).filter((claim) => claim && !claim.signal.aborted);
      if (open.length === 0) return;
      for (const claim of open.slice(0, Math.ceil(open.length / left))) claim.end(new StoppingError());
      if (open.length > 1) await sleep(this.#o.drain / 2 / 50);
    }
  }

  /** goodbye retries for a short time. After that the heartbeat expires by itself. */
  async #goodbye() {
    for (const until = now() + Math.min(this.#o.interval, callTimeout); this.#boot; ) {
      try {
        return await this.#own(this.#control, 'goodbye', [this.table.pending]);
      } catch (err) {
        if (err instanceof ReplacedError || now() >= until) return;
        await sleep(this.#retryDelay);
      }
    }
  }

  get #retryDelay() { return Math.min(this.#o.interval / 10, 1000); }

  #close(why = new StoppingError()) {
    this.#over = true;
    clearTimeout(this.#timer);
    for (const c of [this.#data, this.#control, this.#subscriber]) c?.close();
    for (const { claim } of this.table.devices.values()) claim?.end(why);
  }

  /** own runs a script of the owner and returns its reply. */
  async #own(connection, name, args = [], dead = []) {
    const sent = now(), out = await connection.run(name, [...this.#keys, ...dead], [...this.#common(connection), ...args]).catch((err) => {
      this.#noteFailed(err);
      throw err;
    });
    if (out[0] === 'SUPERSEDED') throw new ReplacedError();
    this.table.clock.read(Number(out[7]), sent, now());
    const foreign = new Map();
    for (let i = 0; i < out[6].length; i += 2) foreign.set(out[6][i], out[6][i + 1]);
    const [found, last, size, count] = [out[1], out[2], out[3], out[5]].map(Number);
    return { found, last, size, lost: out[4], count, foreign };
  }

  /** An answer may have been the only sign of a loss; a server that takes no writes was replaced by one that may lack some. */
  #noteFailed(err) { this.#unheard ||= !answered(err) || isReadOnly(err); }

  get #keys() {
    const names = ['instance:heartbeat:' + this.instance, 'instances:roster', 'instance:devices:' + this.instance,
      'janitor:witness', 'connections:registry', 'janitor:beats'];
    return names.map((n) => this.#key(n));
  }

  /** common is what all scripts get: see ../lua/record.lua. The beats repair what is checked elsewhere. */
  #common(connection, boot = this.#boot) {
    const newest = connection === this.#control ? 0 : this.#newest;
    return [this.instance, boot, this.#o.ttl, '1', Math.ceil(this.#o.interval), this.table.held > 0 ? 'h' : 'i', newest, tag(this.#o.redis)];
  }

  get #grace() { return this.#o.ttl + 2000; }

  async #beat() {
    const before = this.table.batches;
    try {
      if (!this.#boot) {
        await this.#drawBoot();
        return true;
      }
      const args = [this.#grace, this.table.count.standing > 0 && before % 2 === 0 ? '1' : '0'];
      const got = await this.#own(this.#control, 'beat', args).catch((err) => {
        if (!String(err.message).startsWith('OOM')) throw err;
        return this.#own(this.#control, 'full', args); // memory is full
      });
      for (const [what, [bit, text]] of Object.entries(rights)) {
          if (got.count & bit) this.#fail(what, new Error(text));
          else this.#recovered(what);
      }
      if (before % 2 === 1 || before !== this.table.batches) got.size = this.table.indexed;
      if (got.found < this.#newest) got.found = 0; // the server was set back
      this.#newest = got.last;
      this.#read(got);
      this.#recovered('heartbeat');
      return true;
    } catch (err) {
      this.#fail('heartbeat', err);
      return false;
    }
  }

  async #drawBoot() {
    const [boot, newest] = await this.#control.run('boot', this.#keys, [...this.#common(this.#control), this.#random, this.#grace]);
    // Does the other connection see that heartbeat, and may it write there?
    const sent = now(), there = await this.#data.run('here', this.#keys, this.#common(this.#control, boot));
    if (there[0] === 'SUPERSEDED') throw new ReplacedError();
    this.table.clock.read(Number(there[7]), sent, now()); // known before anybody asks
    if (!this.#o.unique) { // a former life may have contended for the lease
      await this.#control.send('SREM', this.#key('janitor:contenders'), this.instance).catch((err) => {
        if (!answered(err)) throw err;
      });
    }
    this.#boot = boot;
    this.#newest = Number(newest);
    this.#recovered('heartbeat');
    this.#pump();
  }

  /** read takes a reply: any sign that Redis lost something has everything checked. */
  #read(got) {
    const absent = got.found === 0 || got.last - got.found >= this.#o.ttl; // others could take this owner for dead
    const held = this.#lost !== null && got.lost && got.lost !== this.#lost;
    this.#lost = got.lost || this.#lost || '';
    if (absent || held || this.#unheard) this.#surprise = true;
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
      for (const [name, ops] of steps) failed = (await overlap(this.table.wanted(ops), (some) => this.#step(name, some, ops.length))) ?? failed;
      failed = (await overlap(b.check, (some) => this.#check(some))) ?? failed;
      this.table.ended(failed !== null);
      this.#tellReconciled();
      if (failed && !this.#over) await sleep(this.#retryDelay);
    }
    this.#pumping = null; // at once: nothing would write what is queued in between
  }

  async #step(name, ops, all) {
    if (ops.length === 0 || this.#over) return null;
    const args = ops.map((o) => o.d.key);
    let dead = [];
    if (ops[0].dead) {
      dead = [...new Set(ops.map((o) => this.#heartbeat(o.dead)))];
      args.push(Math.floor((this.#o.ttl - this.#o.interval) / 2));
    }
    try {
      const got = await this.#own(this.#data, name, args, dead);
      if (dead.length > 0 && got.count < 0) this.table.notYet(ops);
      else this.table.wrote(ops, got, null);
      if (name === 'heal' && got.count > 0) {
        this.#owed = true;
        this.emit('healed', got.count);
      }
      if (name === 'heal') this.#recovered('register'); // healing retries failed registrations
      this.#recovered(name);
      if (all > batchSize) got.size = this.table.indexed; // the others have changed the index, too
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
      const [found] = await this.#ask(ops.map((o) => o.d.key));
      this.table.checked(ops, found, null);
      this.#recovered('check');
      return null;
    } catch (err) {
      this.#noteFailed(err);
      this.table.checked(ops, null, err);
      this.#fail('check', err);
      return err;
    }
  }

  #compareWhenDue() {
    if (!this.#boot || this.#comparing || now() < this.#scanAt) return;
    if (!this.#scanDue) return void (this.#scanPause = 0);
    this.#comparing = this.#compare().finally(() => {
      this.#comparing = null;
      this.#scanPause = Math.min(Math.max(2 * this.#scanPause, this.#o.interval / 10), this.#o.interval);
      this.#scanAt = now() + this.#scanPause;
    });
  }

  /** compare compares the index with the claims, and at first the registry with a former life's. */
  async #compare() {
    this.#scanDue = false;
    const pass = ++this.#pass, begun = this.table.batches;
    let broken = null;
    try {
      try {
        for await (const members of this.#scan('SSCAN', 'instance:devices:' + this.instance)) {
          for (const key of members) this.table.named(key, pass);
        }
        this.table.compareIndex(pass, begun);
      } catch (err) {
        if (!/^-?WRONGTYPE /.test(err.message)) throw err;
        broken = err;
      }
      if (!this.#ready && !this.#o.unique) {
        for await (const entries of this.#scan('HSCAN', 'connections:registry')) {
          for (let i = 0; i < entries.length; i += 2) if (entries[i + 1] === this.instance) this.table.named(entries[i], 0);
        }
      }
      this.#ready = true;
      if (broken) throw broken;
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

  async #listen() {
    const changed = (err) => (err ? this.#fail('listen', err) : this.#recovered('listen'));
    this.#subscriber = new Connection(this.#o.redis, this.#o.interval, changed,
      { channel: this.#channel(this.instance), onMessage: (message) => this.#told(message.split(' ')) });
    await this.#subscriber.open();
  }

  #told([first, ...rest]) {
    if (!first.startsWith(toldPrefix)) return void this.table.noticed('', [first, ...rest]);
    const other = first.slice(toldPrefix.length);
    if (rest[0] === heardWord) return void this.table.noticed(other, rest.slice(1));
    for (const claim of this.table.compare(other, rest)) this.#ping(claim, other);
    this.#talk();
  }

  /** ping finds out whether the newer socket is there, before the older one is closed for it. */
  async #ping(claim, other) {
    try {
      await claim.ping();
      if (claim.device.claim === claim) this.table.answer(claim, other);
    } catch (err) {
      if (claim.device.claim !== claim) return;
      this.table.lose(claim, new NoAnswerError(err));
      this.table.yield(claim.device, other);
    }
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
      for (const [other, claims] of asks) {
        for (const few of chunks(claims)) {
          const some = few.filter((c) => c.device.claim === c); // some have ended since the last message
          if (some.length === 0) continue;
          const { clock } = this.table, said = some.map((c) => `${clock.handshake(c) * (c.answers ? 1 : -1)} ${word(c.key)}`);
          const left = await this.#tell(other, `${toldPrefix}${this.instance} ${clock.when(now())} ${said.join(' ')}`);
          this.table.wasAsked(other, some, left);
        }
      }
    } catch (err) {
      this.#fail('talk', err);
    }
  }

  /** tell publishes to another owner, and returns what PTTL says of its heartbeat. */
  async #tell(other, message) {
    await this.#control.send('PUBLISH', this.#channel(other), message);
    const left = Number(await this.#control.send('PTTL', this.#heartbeat(other)));
    this.#recovered('talk');
    return left;
  }

  #fail(what, err) {
    if (err instanceof ReplacedError) {
      if (this.#over) return;
      this.#close(err);
      this.#end.reject(err);
      this.emit('replaced', err);
      return;
    }
    if (this.#over) return;
    if (!harmless.has(what)) this.#owed = true;
    const lasts = refused(err.cause ?? err);
    const tell = !this.#failing.has(what) || (lasts && !this.#toldRefusal.has(what)); // somebody has to act on it
    this.#failing.set(what, err.message);
    if (lasts) this.#toldRefusal.add(what);
    if (tell) this.emit('failing', what, err);
  }

  #recovered(what) {
    this.#toldRefusal.delete(what);
    if (this.#failing.delete(what)) this.emit('recovered', what);
  }
}

/** overlap calls one for batchSize operations at a time, all under way at once, and returns an error of theirs or null. */
async function overlap(ops, one) {
  const errors = await Promise.all([...chunks(ops)].map(one));
  return errors.find((err) => err !== null) ?? null;
}

function* chunks(list) {
  for (let i = 0; i < list.length; i += batchSize) yield list.slice(i, i + batchSize);
}

function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
