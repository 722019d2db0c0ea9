import { now } from './table.js';

/** MovedError ends a claim whose key has a newer socket, at the instance `to`. */
export class MovedError extends Error {
  constructor(to) {
    super(`a newer socket of this key is at ${to}`);
    this.name = 'MovedError';
    this.to = to;
  }
}

/** NoAnswerError ends a claim whose socket did not answer the ping that was to decide over an older one. */
export class NoAnswerError extends Error {
  constructor(cause) {
    super('the socket did not answer a ping', { cause });
    this.name = 'NoAnswerError';
  }
}

/** TakenError ends a claim whose entry another writer, which answers no questions, has overwritten. */
export class TakenError extends Error {
  constructor() {
    super('another writer has taken the key');
    this.name = 'TakenError';
  }
}

/** StoppingError ends the claims of an owner that stops. */
export class StoppingError extends Error {
  constructor() {
    super('this owner stops');
    this.name = 'StoppingError';
  }
}

const pingTimeout = 5000, pingCounts = 2000; // ms

/** A Claim belongs to one socket, for as long as its key is registered through it. */
export class Claim {
  #owner;
  #socket;
  #abort = new AbortController();
  #land;
  #released = false;
  #verified = -Infinity; // when the last ping was answered
  made = now(); // the handshake
  at = null; // made by the server's clock, and what it had stepped back until then
  said = -Infinity; // when another owner was last answered
  pinging = false;
  device = {};

  constructor(owner, key, socket) {
    this.#owner = owner;
    this.#socket = socket;
    this.key = key;
    this.landed = new Promise((resolve, reject) => (this.#land = { resolve, reject }));
    this.landed.catch(() => {}); // nobody has to wait for it
  }

  /** signal aborts, with the reason, when the claim ends other than by release. */
  get signal() { return this.#abort.signal; }

  /** touch reports that the socket is in use: the entry is checked, at most once a second. */
  touch() { this.#owner.table.touch(this); }

  /** release hands the key back. Only the newest claim of a key has its entry taken out. */
  release() {
    this.#released = true;
    this.#owner.table.release(this);
    this.#land.reject(new Error('the claim was released'));
  }

  land() { this.#land.resolve(); }

  /** end closes the socket, in a microtask of its own. */
  end(why) {
    if (this.#released || this.signal.aborted) return;
    this.#land.reject(why);
    this.#abort.abort(why);
    queueMicrotask(() => this.#socket.close());
  }

  /** answers is whether the socket just answered a ping, or cannot be asked. */
  get answers() { return !this.#socket.ping || now() - this.#verified <= pingCounts; }

  /** ping resolves if the socket answers a ping, within five seconds. */
  async ping() {
    this.pinging = true;
    const signal = AbortSignal.timeout(pingTimeout);
    try {
      await Promise.race([
        this.#socket.ping(signal),
        new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason))),
      ]);
      this.#verified = now();
    } finally {
      this.pinging = false;
    }
  }
}
