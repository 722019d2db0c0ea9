import { now } from './clock.js';
import { bounded } from './redis.js';

class Ended extends Error {
  get name() { return this.constructor.name; }
}

/** ReplacedError ends a replica and its claims: a newer process has its instance id. */
export class ReplacedError extends Ended {}

/** MovedError ends a claim whose id has a newer socket, at the instance `to`. */
export class MovedError extends Ended {
  constructor(to) {
    super(`a newer socket of this id is at ${to}`);
    this.to = to;
  }
}

/** NoAnswerError ends a claim whose socket did not answer the ping that was to decide over an older one. */
export class NoAnswerError extends Ended {}

/** TakenError ends a claim whose entry another writer, which answers no questions, has overwritten. */
export class TakenError extends Ended {}

/** StoppingError ends the claims of a replica that stops. */
export class StoppingError extends Ended {}

const pingTimeout = 5000, pingCounts = 2000; // ms

/** A Claim belongs to one socket, for as long as its id is registered through it. See ../index.d.ts. */
export class Claim {
  #table;
  #socket;
  #abort = new AbortController();
  #refuse;
  #verified = -Infinity; // when the last ping was answered
  made = now(); // the handshake
  at = null; // made by the server's clock, and what it had stepped back until then
  said = -Infinity; // when another replica was last answered
  pinging = false;
  holding = {};

  constructor(table, id, socket) {
    this.#table = table;
    this.#socket = socket;
    this.id = id;
    this.landed = new Promise((resolve, reject) => [this.land, this.#refuse] = [resolve, reject]);
    this.landed.catch(() => {}); // nobody has to wait for it
  }

  get signal() { return this.#abort.signal; }

  touch() { this.#table.touch(this); }

  /** release hands the id back. Only the newest claim of an id has its entry taken out. */
  release() {
    this.#socket = null;
    this.#table.release(this);
    this.#refuse(new Error('the claim was released'));
  }

  /** end closes the socket, in a microtask of its own. */
  end(why) {
    const socket = this.#socket;
    if (!socket || this.signal.aborted) return;
    this.#refuse(why);
    this.#abort.abort(why);
    queueMicrotask(() => socket.close());
  }

  /** answers is whether the socket just answered a ping, or cannot be asked. */
  get answers() { return !this.#socket?.ping || now() - this.#verified <= pingCounts; }

  /** ping resolves if the socket answers a ping, within five seconds. */
  async ping() {
    const late = new AbortController();
    this.pinging = true;
    try {
      await bounded(this.#socket.ping(late.signal), pingTimeout, (err) => late.abort(err));
      this.#verified = now();
    } finally {
      this.pinging = false;
    }
  }
}
