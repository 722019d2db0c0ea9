import { now } from './table.js';

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
