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

/** A claim belongs to one socket for as long as its key is registered through it. */
export interface Claim {
  readonly key: string;
  /**
   * Resolves when the entry is in Redis; rejects if the claim ends before that. Nobody has to wait for it,
   * but what is chained to it needs a catch.
   */
  readonly landed: Promise<void>;
  /** Aborts when the same key opens a newer socket on this owner. Close this socket then. */
  readonly signal: AbortSignal;
  /** Something arrived through this socket. Has the entry checked, at most once a second. */
  received(): void;
  /** An answer to what arrived was written to this socket. */
  acked(): void;
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
 * - `connection`: to Redis; `listen`: the one that subscribes, for `displaced`
 * - `heartbeat`: without one for a whole `ttl`, the entries of this process may be removed
 * - `register`, `release`, `heal` (putting entries back), `check` (reading them), `compare` (with the index)
 * - `talk`: with other owners about keys that both hold
 * - `keep`, `notify`: this user of Redis lacks the right to keep the roster and the index, or to PUBLISH
 */
export type Operation =
  | 'connection' | 'listen' | 'heartbeat' | 'register' | 'release' | 'heal' | 'check' | 'compare' | 'talk' | 'keep' | 'notify';

/** What a listener throws is an uncaught exception of the process. The owner goes on. */
export interface OwnerEvents {
  /**
   * Another owner heard this key later: the socket here is probably half open. Ping it, and end it if no
   * answer comes. Once anybody listens for this event, the owner has a third connection, which subscribes.
   */
  displaced: [{ key: string; owner: string }];
  /** A newer process has this instance id. Nothing more is written: close the sockets and exit. Always listen for it. */
  superseded: [SupersededError];
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

export class SupersededError extends Error {}

export class Owner extends EventEmitter<OwnerEvents> {
  constructor(options: OwnerOptions);
  readonly instance: string;
  /** Resolves after stop; rejects with SupersededError. */
  readonly ended: Promise<void>;
  /** Draws the boot token and begins to beat. Resolves after the first attempt, whether Redis answered or not. */
  start(): Promise<void>;
  /** Claims a key. Never throws and never waits. The newest claim of a key wins, on every owner. */
  register(key: string): Claim;
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
  /** Releases every claim, says goodbye and closes the connections. Nothing registers any more. */
  stop(): Promise<void>;
}
