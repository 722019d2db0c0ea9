import type { EventEmitter } from 'node:events';

export interface OwnerOptions {
  /**
   * A client of ioredis for one server or a Sentinel, or of node-redis for one server, connected or
   * not. The owner duplicates it, with settings that are safe, and leaves it as it is.
   */
  redis: { duplicate(...options: any[]): unknown };
  /**
   * Names this process in entries: up to 200 bytes of printable characters, without spaces and '/'.
   * Default: the host name and a random part. If you fix it, the newest process with that name wins.
   */
  instance?: string | undefined;
  /** Begins every key. All owners, janitors and readers of one fleet share it. Default ''. */
  prefix?: string | undefined;
  /** Milliseconds between heartbeats. All owners of a fleet must agree. Default 30,000. */
  interval?: number | undefined;
  /** Whole milliseconds that a heartbeat lasts: at least three intervals, at most a day. Default 90,000. */
  ttl?: number | undefined;
  /** Milliseconds that unregisterAll and stop wait for Redis. Default 10,000. */
  drain?: number | undefined;
}

/** What the owner may do with a socket. */
export interface Socket {
  /** Ends the socket. Called at most once, in a microtask, when the claim ends other than by release. */
  close(): void;
  /**
   * Resolves only if the other end has answered this call, such as a numbered ping of WebSockets. It is asked
   * before an older socket of another owner is closed for this one; if it rejects, this one is closed. Five
   * seconds, then `signal` aborts.
   */
  ping?(signal: AbortSignal): Promise<unknown>;
}

/** A claim belongs to one socket for as long as its key is registered through it. */
export interface Claim {
  readonly key: string;
  /**
   * Resolves when the entry is in Redis; rejects if the claim ends before that. Nobody has to wait for it,
   * but what is chained to it needs a catch.
   */
  readonly landed: Promise<void>;
  /** Aborts when the claim ends other than by release: the reason is one of the errors below. */
  readonly signal: AbortSignal;
  /** The socket is in use: has the entry checked, at most once a second. A hint, and no evidence. */
  touch(): void;
  /** Ends the claim. The release of a claim that is not the newest of its key changes nothing. */
  release(): void;
}

export interface Status {
  instance: string;
  /** Keys with a claim. */
  held: number;
  /** Keys that are not known to be in Redis as they should. */
  pending: number;
  /** Keys whose entries name this owner. */
  standing: number;
  /** The last error of each operation, while it fails. */
  failing: Partial<Record<Operation, string>>;
}

/**
 * What may fail. Sockets are served all the same, and everything is tried again.
 *
 * - `connection`: to Redis; `listen`: the one that subscribes
 * - `heartbeat`: without one for a whole `ttl`, the entries of this process may be removed
 * - `register`, `release`, `heal` (putting entries back), `check` (reading them), `compare` (with the index)
 * - `talk`: with other owners about keys that both hold
 * - `keep`, `notify`: this user of Redis lacks the right to keep the roster and the index, or to PUBLISH
 */
export type Operation =
  | 'connection' | 'listen' | 'heartbeat' | 'register' | 'release' | 'heal' | 'check' | 'compare' | 'talk' | 'keep' | 'notify';

/** What a listener throws is an uncaught exception of the process. The owner goes on. */
export interface OwnerEvents {
  /** A newer process has this instance id. Nothing more is written, and all sockets are closed: exit. Always listen for it. */
  replaced: [ReplacedError];
  /**
   * An operation begins to fail. Told once until it has recovered, and once more if Redis then refuses it:
   * a wrong password, say, lasts until somebody mends it.
   */
  failing: [operation: Operation, err: Error];
  recovered: [operation: Operation];
  /** So many entries were put back. */
  healed: [count: number];
  /** Redis may have lost entries: everything held is being checked. */
  reconciling: [];
  /**
   * Everything held is in Redis again, after it may have lost entries, a call failed, or an entry was put
   * back. Put back what you keep in Redis beside the entries, such as an index of them by user: it may be
   * lost too. At most once an interval; after a second loss within one, it is emitted when that is over.
   */
  reconciled: [];
}

/** The owner has ended: a newer process has its instance id. */
export class ReplacedError extends Error {}
/** The key has a newer socket, at the instance `to`. Tell the client not to connect again. */
export class MovedError extends Error { readonly to: string; }
/** An older socket of the key was to be closed for this one, which did not answer a ping. */
export class NoAnswerError extends Error {}
/** A writer that lives and answers no questions has overwritten the entry. A client that connects again overwrites that. */
export class TakenError extends Error {}
/** The owner stops, or has ended. */
export class StoppingError extends Error {}

export class Owner extends EventEmitter<OwnerEvents> {
  constructor(options: OwnerOptions);
  readonly instance: string;
  /** Resolves after stop; rejects with ReplacedError. */
  readonly ended: Promise<void>;
  /** Draws the boot token and begins to beat. Resolves after the first attempt, whether Redis answered or not. */
  start(): Promise<void>;
  /**
   * Claims a key, and never waits. This call is the socket's handshake: of all sockets of a key, on all owners,
   * the newest handshake wins, and the others are closed. Throws a TypeError without `close`.
   */
  register(key: string, socket: Socket): Claim;
  /** Releases the newest claim of a key. */
  unregister(key: string): void;
  /** Releases every claim; resolves when Redis has it, or after `drain`. */
  unregisterAll(): Promise<void>;
  /** Beats now; resolves with whether the beat landed. Nobody has to call it: start beats by itself. */
  heartbeat(): Promise<boolean>;
  /**
   * Returns who holds a key, and whether that owner is alive; null if nobody holds it. Rejects if Redis does
   * not answer, and before start. Calls that are made together share a round trip.
   */
  lookup(key: string): Promise<{ owner: string; alive: boolean } | null>;
  status(): Status;
  /**
   * Closes every socket, evenly over half of `drain`, releases every claim, says goodbye and closes the
   * connections. Nothing registers any more.
   */
  stop(): Promise<void>;
}
