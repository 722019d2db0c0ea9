import { MovedError, TakenError } from './claim.js';
import { Clock, awake, now } from './clock.js';
import { batchSize } from './directory.js';

const fresh = 1000; // ms after its handshake for which a registration overwrites whatever it finds
const checkEvery = 1000; // ms between two checks of one entry that touch causes
const answerEvery = 1000; // ms between two answers about one claim
const shards = 10;

/*
 * States of an id, as in registry/table.go:
 *
 * held:      unwritten     Redis was never asked to write it
 *            registering   its registration waits
 *            unconfirmed   to be put back if nothing is there
 *            standing      the entry names this owner
 *            foreign       the entry names another owner
 * not held:  releasing, released
 * forgotten: not in the table any more
 */
const states = ['forgotten', 'unwritten', 'registering', 'unconfirmed', 'standing', 'foreign', 'releasing', 'released'];
const untried = new Set(['unwritten', 'registering']);
const afterFailure = { standing: 'unconfirmed', released: 'releasing' };

/**
 * A Table is all that this replica knows of its ids. It does no input or output: what is to be done waits
 * in its queues.
 */
export class Table {
  holdings = new Map();
  urgent = new Set();
  checks = new Set();
  again = new Set();
  clock = new Clock();
  asks = new Map(); // other owner -> claims to ask it about
  heard = new Map(); // other owner -> words to confirm to it
  suspects = new Set(); // holdings that checkAll queued and no batch has taken yet
  lost = new Map(); // holding that is to be taken out -> the owner to tell when it is
  count = Object.fromEntries(states.map((state) => [state, 0])); // of holdings; that of forgotten is unused
  indexed = 0;
  batches = 0; // odd while one is under way
  away = false; // a call of the last batch failed
  lateUntil = 0; // until then, awake, a write of unknown fate may land
  outliveAt = 0;
  made = 0;

  constructor(instance, interval, ttl) {
    Object.assign(this, { instance, interval, ttl });
  }

  /** register makes claim the newest of its id, and ends the older one. */
  register(claim) {
    const d = this.holdings.get(claim.id) ?? this.add(claim.id, 'unwritten');
    d.claim?.end(new MovedError(this.instance));
    d.claim = claim;
    claim.holding = d;
    this.lost.delete(d);
    this.set(d, d.state === 'unwritten' ? 'unwritten' : 'registering');
    this.enqueue(d, true);
  }

  release(claim) {
    const d = claim.holding;
    if (d.claim !== claim) return;
    d.claim = null;
    if (d.state === 'unwritten') return void this.forget(d);
    this.set(d, 'releasing');
    this.enqueue(d, true);
  }

  /** lose ends a claim that another owner's socket has won against. */
  lose(claim, why) {
    this.release(claim);
    claim.end(why);
  }

  touch(claim) {
    const d = claim.holding, at = now();
    if (d.claim !== claim || d.state !== 'standing') return; // retry checks it until Redis agrees
    if (at - d.checked < checkEvery) return void this.again.add(d);
    d.checked = at;
    this.enqueue(d, false);
  }

  get held() { return this.holdings.size - this.count.releasing - this.count.released; }

  /** pending is how many ids are not known to be in Redis as they should. */
  get pending() { return this.holdings.size - this.count.standing - this.count.released; }

  get healed() { return this.count.unconfirmed === 0; }

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

  /** next begins a batch of what is most urgent: lists of {d, claim, dead}. */
  next() {
    const at = now(), b = { register: [], heal: [], outlive: [], release: [], check: [] };
    this.batches++;
    for (const { d, urgent } of this.first()) {
      this.suspects.delete(d);
      const claim = d.claim, wasUntried = untried.has(d.state);
      if (wasUntried) this.set(d, 'unconfirmed');
      if (!claim) b.release.push({ d, claim });
      else if (wasUntried && at - claim.made < fresh) b.register.push({ d, claim });
      else if (urgent && (d.indexed || d.state !== 'foreign')) b.heal.push({ d, claim });
      else if (d.dispute?.silent && at >= this.outliveAt) b.outlive.push({ d, claim, dead: d.dispute.owner });
      else b.check.push({ d, claim });
    }
    return b;
  }

  /** first takes the most urgent holdings. A new iterator of a Set walks past all that has left its front. */
  *first() {
    let most = batchSize;
    for (const queue of [this.urgent, this.checks]) {
      for (const d of queue) {
        if (most-- <= 0) return;
        queue.delete(d);
        yield { d, urgent: queue === this.urgent };
      }
    }
  }

  /** wanted drops what was decided anew since the batch was made. */
  wanted(ops) { return ops.filter((o) => o.d.claim === o.claim); }

  ended(failed) {
    this.batches++;
    this.away = failed;
  }

  /** wrote records what a script did, or that nobody knows what it did. */
  wrote(ops, reply, err) {
    for (const o of ops) {
      const d = o.d;
      if (d.state === 'forgotten') continue;
      if (err) {
        this.lateUntil = d.late = awake() + this.ttl;
        this.set(d, afterFailure[d.state] ?? d.state);
      } else if (!o.claim) {
        this.index(d, false);
        if (d.claim) continue;
        this.out(d);
        this.agree(d, 'released');
      } else {
        const owner = reply.foreign.get(d.id);
        this.index(d, owner === undefined);
        this.clock.stamp(o.claim);
        d.checked = now();
        if (owner === undefined) this.isOurs(d, o.claim);
        else if (d.claim === o.claim) this.isForeign(d, owner);
        if (o.dead && d.dispute) d.dispute.silent = false;
      }
    }
  }

  /** checked records what the entries are: owners in the order of ops, null if there is none. */
  checked(ops, found) {
    ops.forEach(({ d, claim }, i) => {
      if (d.state === 'forgotten') return;
      d.checked = now();
      if (d.claim !== claim) return; // decided anew already
      const owner = found[i] ?? '', ours = owner === this.instance;
      if (ours && d.indexed) this.isOurs(d, claim);
      else if (ours || owner === '') {
        this.set(d, 'unconfirmed');
        this.enqueue(d, true);
      } else {
        this.isForeign(d, owner);
        if (d.indexed) this.enqueue(d, true); // to leave the index
      }
    });
  }

  unchecked(ops) {
    for (const { d } of ops) if (d.state !== 'forgotten') this.set(d, afterFailure[d.state] ?? d.state);
  }

  /** notYet records that none of the owners named by these operations is dead for the guard. */
  notYet(ops) {
    this.outliveAt = now() + this.interval / 20;
    for (const o of ops) if (o.d.claim === o.claim && o.d.state === 'foreign') this.enqueue(o.d, false);
  }

  /** retry is called every tenth of an interval. */
  retry() {
    const at = now();
    for (const d of this.again) {
      if (d.state === 'standing' && at - d.checked < checkEvery) continue;
      this.enqueue(d, d.state !== 'standing' && d.state !== 'foreign');
    }
  }

  /** checkShard queues a tenth of the entries for a check, checkAll all of them. */
  checkShard(turn) {
    for (const d of this.holdings.values()) if (d.shard === turn % shards) this.checkStanding(d);
  }

  checkAll() {
    for (const d of this.holdings.values()) this.checkStanding(d);
    this.suspects = new Set(this.checks);
  }

  checkStanding(d) {
    if (d.state === 'standing') this.enqueue(d, false);
  }

  /** named records that a scan found id as this replica's. It is handed back unless it is held. */
  named(id) {
    const d = this.holdings.get(id) ?? this.add(id, 'releasing');
    if (!d.claim && !this.urgent.has(d)) {
      this.set(d, 'releasing');
      this.enqueue(d, true);
    }
    return d;
  }

  /** compareIndex compares the index's members with the claims, after a scan that began after `begun` batches. */
  compareIndex(members, begun) {
    for (const d of this.holdings.values()) {
      const member = members.has(d.id);
      if (!d.claim || d.wrote >= begun || d.indexed === member) continue;
      if (d.state === 'standing' && d.indexed) {
        this.set(d, 'unconfirmed');
        this.enqueue(d, true);
      } else {
        this.index(d, member);
        if (d.indexed && d.state === 'foreign') this.enqueue(d, true);
      }
    }
  }

  indexDiffers(size) {
    return size !== this.indexed && (this.pending === 0 || awake() > this.lateUntil);
  }

  /**
   * compare compares another replica's handshakes with those here: see registry/dispute.go. The caller pings
   * the claims that it returns, and then answers.
   */
  compare(other, [theirNow, ...pairs]) {
    const at = now(), newer = [];
    if (!/^-?\d+$/.test(theirNow) || !this.clock.agrees(Number(theirNow), at)) return newer; // it will ask again
    for (let i = 0; i + 1 < pairs.length; i += 2) {
      if (!/^-?\d+$/.test(pairs[i])) break;
      const theirs = Math.abs(pairs[i]), id = unword(pairs[i + 1]), d = this.holdings.get(id), claim = d?.claim;
      if (!claim) {
        this.yield(this.named(id), other);
        continue;
      }
      const ours = this.clock.handshake(claim), asked = d.dispute?.owner === other;
      if (asked) d.dispute.asked = null;
      const older = ours < theirs || (ours === theirs && asked); // if equal, the entry's owner keeps it
      if (older && pairs[i] > 0) {
        this.lose(claim, new MovedError(other));
        this.yield(d, other);
      } else if (claim.pinging || at - claim.said < answerEvery) {
        this.confirm(d, other);
      } else if (older || claim.answers) {
        this.answer(claim, other);
      } else {
        newer.push(claim);
        this.confirm(d, other);
      }
    }
    return newer;
  }

  answer(claim, owner) {
    claim.said = now();
    push(this.asks, owner, claim);
    this.talk?.();
  }

  confirm(d, owner) {
    push(this.heard, owner, word(d.id));
    this.talk?.();
  }

  /** yield has the other owner told that an id is not held here: now, and when its entry is out. */
  yield(d, owner) {
    if (d.state !== 'forgotten') this.lost.set(d, owner); // there is something to take out
    this.confirm(d, owner);
  }

  out(d) {
    const owner = this.lost.get(d);
    if (this.lost.delete(d)) this.confirm(d, owner);
  }

  /** noticed has ids checked that another owner has taken over, or that it deals with: they may be out. */
  noticed(other, words) {
    for (const w of words) {
      const d = this.holdings.get(unword(w));
      if (d?.dispute?.owner === other) {
        d.dispute.asked = null;
        this.enqueue(d, false);
      } else if (d) {
        this.checkStanding(d);
      }
    }
  }

  /** wasAsked records that another owner was asked, and what PTTL says of its heartbeat. */
  wasAsked(other, claims, left) {
    const at = now(), until = left === -1 ? Infinity : left > 0 ? at + left : null;
    for (const claim of claims) {
      const d = claim.holding, dispute = d.dispute;
      if (d.claim !== claim || dispute?.owner !== other) continue;
      dispute.silent = until === null;
      if (until === null) dispute.asked = null;
      else if (dispute.asked === null) [dispute.asked, dispute.until] = [at, until];
      else if (at - dispute.asked >= 2 * this.interval && (until === Infinity || until - dispute.until > this.interval / 2)) {
        this.lose(claim, new TakenError('another writer has taken the id')); // a plain writer, which beats and never answers
      }
    }
  }

  isForeign(d, owner) {
    this.set(d, 'foreign');
    if (d.dispute?.owner !== owner) d.dispute = { owner, ask: 0, pause: this.interval / 10, asked: null, until: 0, silent: false };
    const at = now(), dispute = d.dispute;
    if (at < dispute.ask) return;
    dispute.ask = at + dispute.pause;
    dispute.pause = Math.min(2 * dispute.pause, this.interval);
    push(this.asks, owner, d.claim);
    this.talk?.();
  }

  isOurs(d, claim) {
    if (d.claim !== claim) return;
    claim.land();
    this.agree(d, 'standing');
  }

  agree(d, state) {
    this.set(d, state);
    if (d.late > awake()) return;
    this.again.delete(d);
    if (state === 'released' && !this.urgent.has(d) && !this.checks.has(d)) this.forget(d);
  }

  add(id, state) {
    const d = {
      id, state: 'forgotten', claim: null, dispute: null, late: 0, checked: -Infinity, indexed: false, wrote: -1,
      shard: Math.floor(this.made++ / batchSize) % shards,
    };
    this.holdings.set(id, d);
    this.set(d, state);
    return d;
  }

  forget(d) {
    this.index(d, false);
    this.set(d, 'forgotten');
    for (const queue of [this.urgent, this.checks, this.suspects, this.again, this.lost]) queue.delete(d);
    this.holdings.delete(d.id);
  }

  index(d, member) {
    d.wrote = this.batches;
    if (d.indexed !== member) this.indexed += member ? 1 : -1;
    d.indexed = member;
  }

  set(d, state) {
    this.count[d.state]--;
    this.count[state]++;
    d.state = state;
    if (state !== 'foreign') d.dispute = null;
    if (state !== 'standing' && state !== 'released') this.again.add(d);
  }
}

function push(map, owner, value) {
  if (!map.has(owner)) map.set(owner, []);
  map.get(owner).push(value);
}

/** word returns the word for an id in a message to another owner: see word in registry/dispute.go. */
export function word(id) {
  if (id === '') return '%';
  return id.replace(/[\x00-\x20\x7f%]|^\//g, (c) => '%' + c.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0'));
}

export function unword(text) {
  if (text === '%') return '';
  return text.replace(/%([0-9A-Fa-f]{2})/g, (_, hex) => String.fromCharCode(parseInt(hex, 16)));
}
