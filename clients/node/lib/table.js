import { performance } from 'node:perf_hooks';

/** awake is in milliseconds and stands still while the machine is suspended. */
const awake = () => performance.now();

let last = { awake: awake(), wall: Date.now() }, suspended = 0;

/** now is in milliseconds, goes on while the machine is suspended, and never goes back. */
export function now() {
  const at = { awake: awake(), wall: Date.now() };
  const missed = at.wall - last.wall - (at.awake - last.awake);
  if (missed > 100) suspended += missed; // less is the clocks' own inaccuracy
  last = at;
  return at.awake + suspended;
}

const fresh = 1000; // ms for which a handshake, or a frame, is evidence enough to overwrite
const checkEvery = 1000; // ms between two checks of one entry that frames cause
const tellAgain = 300_000; // ms between two reports of one displaced key that was not heard meanwhile
const shards = 10;

/** batchSize bounds one script: about 0.5 ms of the server's time. */
export const batchSize = 500;
const overlapped = 8; // scripts under way at a time

/*
 * States of a key, as in registry/table.go:
 *
 * held:      unwritten     Redis was never asked to write it
 *            registering   its registration waits
 *            unconfirmed   to be put back if nothing is there
 *            standing      the entry names this owner
 *            contested     the entry named another owner, and a call failed since
 *            foreign       the entry names another owner
 *            acknowledged  a frame was acknowledged after that was seen
 *            proven        and a further frame arrived: the socket here is live
 * not held:  releasing, released
 * forgotten: not in the table any more
 */
const states = ['forgotten', 'unwritten', 'registering', 'unconfirmed', 'standing', 'contested', 'foreign', 'acknowledged', 'proven', 'releasing', 'released'];
const untried = new Set(['unwritten', 'registering']);
const disputed = new Set(['contested', 'foreign', 'acknowledged', 'proven']);
const afterFailure = { standing: 'unconfirmed', released: 'releasing', foreign: 'contested', acknowledged: 'contested', proven: 'contested' };

/**
 * A Table is all that this owner knows of its keys. It does no input or output: what is to be done waits
 * in its queues.
 */
export class Table {
  devices = new Map();
  urgent = new Set();
  checks = new Set();
  again = new Set();
  asks = new Map(); // other owner -> devices to ask it about
  heard = new Map(); // other owner -> words to confirm to it
  suspects = new Set(); // devices that checkAll queued and no batch has taken yet
  displaced = [];
  count = Object.fromEntries(states.map((state) => [state, 0])); // of devices; that of forgotten is unused
  indexed = 0;
  batches = 0; // odd while one is under way
  away = false; // a call of the last batch failed
  lateUntil = 0; // until then, awake, a write of unknown fate may land
  outliveAt = 0;
  #made = 0;
  #interval;
  #ttl;

  constructor(id, interval, ttl) {
    this.id = id;
    this.#interval = interval;
    this.#ttl = ttl;
  }

  /** register makes claim the newest of its key and returns the one that it supersedes. */
  register(claim, key) {
    const d = this.devices.get(key) ?? this.#add(key, 'unwritten');
    const older = d.claim;
    d.claim = claim;
    claim.device = d;
    this.#set(d, d.state === 'unwritten' ? 'unwritten' : 'registering');
    this.enqueue(d, true);
    return older;
  }

  release(claim) {
    const d = claim.device;
    if (d.claim !== claim) return;
    d.claim = null;
    if (d.state === 'unwritten') return void this.#forget(d);
    this.#set(d, 'releasing');
    this.enqueue(d, true);
  }

  frameReceived(claim) {
    const d = claim.device, at = now();
    if (d.claim !== claim) return;
    claim.heard = at;
    if (d.state === 'acknowledged' || d.state === 'proven') {
      this.#set(d, 'proven');
      this.enqueue(d, true);
    } else if (d.state === 'standing') {
      if (at - d.checked < checkEvery) return void this.again.add(d);
      d.checked = at;
      this.enqueue(d, false);
    }
  }

  frameAcked(claim) {
    const d = claim.device;
    if (d.claim === claim && d.state === 'foreign') this.#set(d, 'acknowledged');
  }

  get held() { return this.devices.size - this.count.releasing - this.count.released; }

  /** pending is how many keys are not known to be in Redis as they should. */
  get pending() { return this.devices.size - this.count.standing - this.count.released; }

  get healed() { return this.count.unconfirmed + this.count.contested + this.count.proven === 0; }

  /** restored is whether Redis has all that is held: nothing is lost, and nothing waits to be checked. */
  get restored() {
    return this.suspects.size === 0 && this.healed && !this.away && this.batches % 2 === 0;
  }

  enqueue(d, urgent) {
    if (this.urgent.has(d)) return;
    if (urgent) {
      this.checks.delete(d);
      this.urgent.add(d);
    } else {
      this.checks.add(d);
    }
    this.wake?.();
  }

  /** next begins a batch of what is most urgent: lists of {d, claim, seen, dead}. */
  next() {
    const at = now(), b = { register: [], heal: [], outlive: [], release: [], check: [] };
    this.batches++;
    for (const { d, urgent } of this.#first(overlapped * batchSize)) {
      this.suspects.delete(d);
      const claim = d.claim, wasUntried = untried.has(d.state);
      if (wasUntried) this.#set(d, 'unconfirmed');
      if (!claim) b.release.push({ d, claim });
      else if (wasUntried && at - claim.made < fresh) b.register.push({ d, claim });
      else if (urgent && this.#proof(d)) b.heal.push({ d, claim, seen: d.dispute.owner });
      else if (urgent && (d.indexed || !disputed.has(d.state))) b.heal.push({ d, claim });
      else if (d.dispute?.silent && d.state !== 'contested' && at >= this.outliveAt) b.outlive.push({ d, claim, dead: d.dispute.owner });
      else b.check.push({ d, claim });
    }
    return b;
  }

  /** first takes the most urgent devices. A new iterator of a Set walks past all that has left its front. */
  *#first(most) {
    for (const queue of [this.urgent, this.checks]) {
      for (const d of queue) {
        if (most-- <= 0) return;
        queue.delete(d);
        yield { d, urgent: queue === this.urgent };
      }
    }
  }

  /** wanted drops what was decided anew since the batch was made, and what rests on proof that has aged. */
  wanted(ops) {
    return ops.filter((o) => o.d.claim === o.claim && (!o.seen || this.#proof(o.d)) && (!o.dead || o.d.dispute?.owner === o.dead));
  }

  ended(failed) {
    this.batches++;
    this.away = failed;
  }

  /** wrote records what a script did, or that nobody knows what it did. */
  wrote(ops, reply, err) {
    const at = now();
    for (const o of ops) {
      const d = o.d, owner = reply?.foreign.get(d.key);
      if (d.state === 'forgotten') continue;
      if (err) {
        this.lateUntil = d.late = awake() + this.#ttl;
        this.#set(d, afterFailure[d.state] ?? d.state);
      } else if (!o.claim) {
        this.#index(d, false);
        if (!d.claim) this.#agree(d, 'released');
      } else if (owner !== undefined) {
        this.#index(d, false);
        if (d.claim === o.claim) {
          if (o.seen) this.#set(d, afterFailure[d.state] ?? d.state); // the proof was against another claim
          this.#isForeign(d, owner);
          if (o.dead) d.dispute.silent = false;
        }
      } else {
        this.#index(d, true);
        d.checked = at;
        this.#isOurs(o);
      }
    }
  }

  /** checked records what the entries are: owners in the order of ops, null if there is none. */
  checked(ops, found, err) {
    ops.forEach((o, i) => {
      const d = o.d;
      if (d.state === 'forgotten') return;
      if (err) return void this.#set(d, afterFailure[d.state] ?? d.state);
      d.checked = now();
      const owner = found[i] ?? '';
      if (d.claim !== o.claim) return; // decided anew already
      if (owner === this.id && d.indexed) this.#isOurs(o);
      else if (owner === this.id || owner === '') {
        this.#set(d, 'unconfirmed');
        this.enqueue(d, true);
      } else {
        this.#isForeign(d, owner);
        if (d.indexed && disputed.has(d.state)) this.enqueue(d, true); // to leave the index
      }
    });
  }

  /** notYet records that none of the owners named by these operations is dead for the guard. */
  notYet(ops) {
    this.outliveAt = now() + this.#interval / 20;
    for (const o of ops) if (o.d.claim === o.claim && disputed.has(o.d.state)) this.enqueue(o.d, false);
  }

  /** retry is called every tenth of an interval. */
  retry() {
    const at = now();
    for (const d of this.again) {
      if (d.state === 'standing' && at - d.checked < checkEvery) continue;
      this.enqueue(d, d.state === 'proven' || (d.state !== 'standing' && !disputed.has(d.state)));
    }
  }

  /** checkShard queues a tenth of the entries for a check, checkAll all of them. */
  checkShard(turn) {
    for (const d of this.devices.values()) if (d.shard === turn % shards) this.checkStanding(d.key);
  }

  checkAll() {
    for (const d of this.devices.values()) this.checkStanding(d.key);
    this.suspects = new Set(this.checks);
  }

  checkStanding(key) {
    const d = this.devices.get(key);
    if (d?.state === 'standing') this.enqueue(d, false);
  }

  /** named records that a scan found key as this owner's. It is handed back unless it is held. */
  named(key, pass) {
    const d = this.devices.get(key) ?? this.#add(key, 'releasing');
    d.scanned = pass;
    if (!d.claim && !this.urgent.has(d)) {
      this.#set(d, 'releasing');
      this.enqueue(d, true);
    }
  }

  /** compareIndex compares the index with the claims after a scan that began after `begun` batches. */
  compareIndex(pass, begun) {
    for (const d of this.devices.values()) {
      const member = d.scanned === pass;
      if (!d.claim || d.wrote >= begun || d.indexed === member) continue;
      if (d.state === 'standing' && d.indexed) {
        this.#set(d, 'unconfirmed');
        this.enqueue(d, true);
      } else {
        this.#index(d, member);
        if (d.indexed && disputed.has(d.state)) this.enqueue(d, true);
      }
    }
  }

  indexDiffers(size) {
    return size !== this.indexed && (this.pending === 0 || awake() > this.lateUntil);
  }

  /**
   * compare compares what another owner heard with what is known here: pairs of the age in milliseconds
   * and the word for a key. Whoever heard a key later has the live socket.
   */
  compare(other, pairs) {
    const at = now();
    for (let i = 0; i + 1 < pairs.length; i += 2) {
      if (!/^-?\d+$/.test(pairs[i])) break;
      const theirs = Number(pairs[i]), key = unword(pairs[i + 1]), d = this.devices.get(key);
      if (!d?.claim) {
        this.named(key, 0);
        push(this.heard, other, pairs[i + 1]);
        continue;
      }
      const ours = Math.floor(at - d.claim.heard), asked = d.dispute?.owner === other;
      if (asked) d.dispute.unheard = false;
      if (ours > theirs || (ours === theirs && asked)) {
        this.#displace(d, other);
        if (!asked) push(this.heard, other, pairs[i + 1]);
      } else if (!asked) {
        push(this.asks, other, d);
      }
    }
  }

  wasHeard(other, words) {
    for (const w of words) {
      const d = this.devices.get(unword(w));
      if (d?.dispute?.owner === other) d.dispute.unheard = false;
    }
  }

  /** asked records whether another owner received what it was asked, and whether it has a heartbeat. */
  asked(other, devices, heard, lives) {
    for (const d of devices) {
      if (d.dispute?.owner !== other) continue;
      if (lives && !heard && d.dispute.unheard) this.#displace(d, other);
      d.dispute.unheard = lives && !heard;
      d.dispute.silent = !lives && canBeInstance(other);
    }
  }

  takeAsks() {
    const asks = this.asks;
    this.asks = new Map();
    for (const devices of asks.values()) for (const d of devices) if (d.dispute) d.dispute.waits = false;
    return asks;
  }

  #isForeign(d, owner) {
    if (d.dispute?.owner !== owner) {
      this.#set(d, 'contested');
      d.dispute = { owner, asked: -Infinity, waits: false, unheard: false, silent: false };
    }
    if (d.state === 'contested') this.#set(d, 'foreign');
    if (now() - d.dispute.asked >= this.#interval && !d.dispute.waits) {
      d.dispute.asked = now();
      d.dispute.waits = true;
      push(this.asks, owner, d);
      this.talk?.();
    }
  }

  #proof(d) {
    if (d.state !== 'proven') return false;
    if (now() - d.claim.heard < fresh) return true;
    this.#set(d, 'foreign');
    return false;
  }

  #displace(d, owner) {
    const c = d.claim, at = now();
    if (at - c.told < tellAgain && c.heard <= c.told) return;
    c.told = at;
    this.displaced.push({ key: d.key, owner });
  }

  #isOurs(o) {
    if (o.d.claim !== o.claim) return;
    o.claim.land();
    this.#agree(o.d, 'standing');
  }

  #agree(d, state) {
    this.#set(d, state);
    if (d.late > awake()) return;
    this.again.delete(d);
    if (state === 'released' && !this.urgent.has(d) && !this.checks.has(d)) this.#forget(d);
  }

  #add(key, state) {
    const d = {
      key, state: 'forgotten', claim: null, dispute: null, late: 0, checked: -Infinity, indexed: false, wrote: -1, scanned: -1,
      shard: Math.floor(this.#made++ / batchSize) % shards,
    };
    this.devices.set(key, d);
    this.#set(d, state);
    return d;
  }

  #forget(d) {
    this.#index(d, false);
    this.#set(d, 'forgotten');
    for (const queue of [this.urgent, this.checks, this.suspects, this.again]) queue.delete(d);
    this.devices.delete(d.key);
  }

  #index(d, member) {
    d.wrote = this.batches;
    if (d.indexed !== member) this.indexed += member ? 1 : -1;
    d.indexed = member;
  }

  #set(d, state) {
    this.count[d.state]--;
    this.count[state]++;
    d.state = state;
    if (!disputed.has(state)) d.dispute = null;
    if (state !== 'standing' && state !== 'released') this.again.add(d);
  }
}

function push(map, key, value) {
  if (map.has(key)) map.get(key).push(value);
  else map.set(key, [value]);
}

function canBeInstance(id) {
  return id !== '' && Buffer.byteLength(id) <= 256 && !/\p{Cc}/u.test(id);
}

/** word returns the word for a key in a message to another owner: see registry/words.go. */
export function word(key) {
  if (key === '') return '%';
  return key.replace(/[\x00-\x20\x7f%]|^\//g, (c) => '%' + c.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0'));
}

export function unword(text) {
  if (text === '%') return '';
  return text.replace(/%([0-9A-Fa-f]{2})/g, (_, hex) => String.fromCharCode(parseInt(hex, 16)));
}
