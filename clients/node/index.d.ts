import type { EventEmitter } from 'node:events';

/** A client of ioredis for one server or a Sentinel, or of node-redis for one server. */
export interface Client {
  duplicate(...options: any[]): unknown;
}

export interface ReaderOptions {
  /**
   * Connected or not. It is duplicated, with settings that are safe, and left as it is.
   */
  redis: Client;
  /** Begins every key and channel. All processes of one fleet share it. Default ''. */
  prefix?: string | undefined;
}

/** Another option, such as one without its unit, is a TypeError. */
export interface ReplicaOptions extends ReaderOptions {
  /**
   * Names this process in entries: up to 200 bytes of printable characters, without spaces and '/'.
   * Default: the host name and a random part. If you fix it, the newest process with that name wins.
   */
  instance?: string | undefined;
  /** Whole milliseconds between heartbeats. All replicas of a fleet must agree. Default 30,000. */
  intervalMs?: number | undefined;
  /** Whole milliseconds that a heartbeat lasts: at least three intervals, which is the default, at most a day. */
  ttlMs?: number | undefined;
  /** Milliseconds that stop takes at most. Default 10,000. */
  drainMs?: number | undefined;
}

/** What the replica may do with a socket. */
export interface Socket {
  /** Ends the socket. Called at most once, in a microtask, when the claim ends other than by release. */
  close(): void;
  /**
   * Resolves only if the other end has answered this call, such as a numbered ping of WebSockets. It is asked
   * before an older socket of another replica is closed for this one; if it rejects, this one is closed. Five
   * seconds, then `signal` aborts.
   */
  ping?(signal: AbortSignal): Promise<unknown>;
}

/** A claim belongs to one socket for as long as its id is registered through it. Only register makes one. */
export class Claim {
  private constructor();
  readonly id: string;
  /**
   * Resolves when the entry is in Redis; rejects if the claim ends before that. Nobody has to wait for it,
   * but what is chained to it needs a catch.
   */
  readonly landed: Promise<void>;
  /** Aborts when the claim ends other than by release: the reason is one of the errors below. */
  readonly signal: AbortSignal;
  /** The socket is in use: has the entry checked, at most once a second. A hint, and no evidence. */
  touch(): void;
  /** Ends the claim. The release of a claim that is not the newest of its id changes nothing. */
  release(): void;
}

/** The instance that holds an id, and whether its heartbeat exists. */
export interface Owner {
  instance: string;
  live: boolean;
}

export interface Status {
  instance: string;
  /** Ids with a claim. */
  held: number;
  /** Ids that are not known to be in Redis as they should. */
  pending: number;
  /** The last error of each operation, while it fails. */
  failing: Partial<Record<Operation, string>>;
}

/**
 * What may fail. Sockets are served all the same, and everything is tried again.
 *
 * - `connection`: to Redis; `listen`: the one that subscribes
 * - `heartbeat`: without one for a whole `ttlMs`, the entries of this process may be removed
 * - `register`, `release`, `heal` (putting entries back), `check` (reading them), `compare` (with the index)
 * - `talk`: with other replicas about ids that both hold
 * - `keep`, `notify`: this user of Redis lacks the right to keep the roster and the index, or to PUBLISH
 */
export type Operation =
  | 'connection' | 'listen' | 'heartbeat' | 'register' | 'release' | 'heal' | 'check' | 'compare' | 'talk' | 'keep' | 'notify';

/** What a listener throws is an uncaught exception of the process. The replica goes on. */
export interface ReplicaEvents {
  /**
   * An operation begins to fail. Told once until it has recovered, and again if Redis then refuses it:
   * a wrong password, say, lasts until somebody mends it.
   */
  failing: [operation: Operation, err: Error];
  recovered: [operation: Operation];
  /** So many entries were put back. */
  healed: [count: number];
  /**
   * Everything held is in Redis again, after it may have lost entries, a call failed, or an entry was put
   * back. Put back what you keep in Redis beside the entries, such as an index of them by user: it may be
   * lost too. At most once an interval; after a second loss within one, it is emitted when that is over.
   */
  reconciled: [];
}

/** The replica has ended: a newer process has its instance id. */
export class ReplacedError extends Error {}
/** The id has a newer socket, at the instance `to`. Tell the client not to connect again. */
export class MovedError extends Error {
  readonly to: string;
}
/** An older socket of the id was to be closed for this one, which did not answer a ping. */
export class NoAnswerError extends Error {}
/** A writer that lives and answers no questions has overwritten the entry. A client that connects again overwrites that. */
export class TakenError extends Error {}
/** The replica stops, or has ended. */
export class StoppingError extends Error {}

/** Answers where ids are. Each method rejects if Redis does not answer. */
export interface Directory {
  /** Returns who holds an id, or null. */
  lookup(id: string): Promise<Owner | null>;
  /** Returns who holds each of these ids, 500 of them as of one instant. Ids that nobody holds are missing. */
  lookupMany(ids: Iterable<string>): Promise<Map<string, Owner>>;
  /** Returns every instance that has registered and is not swept yet, sorted. Plain writers are missing. */
  owners(): Promise<Owner[]>;
  /** Walks the ids that an instance holds. One that moves meanwhile may be missing, or come twice. */
  holdings(instance: string): AsyncIterable<string>;
}

/** A Directory for a process that holds no sockets, such as a gateway. It writes nothing. */
export class Reader implements Directory {
  constructor(options: ReaderOptions);
  /** Closes its connection. */
  close(): void;
  lookup(id: string): Promise<Owner | null>;
  lookupMany(ids: Iterable<string>): Promise<Map<string, Owner>>;
  owners(): Promise<Owner[]>;
  holdings(instance: string): AsyncIterable<string>;
}

export class Replica extends EventEmitter<ReplicaEvents> implements Directory {
  constructor(options: ReplicaOptions);
  readonly instance: string;
  /** Draws the boot token and begins to beat. Resolves after the first attempt, whether Redis answered or not. */
  start(): Promise<void>;
  /**
   * Starts, unless that is done, and resolves when the signal has aborted and this replica has stopped, or
   * after stop. Rejects with ReplacedError if a newer process has this instance id. Then nothing more is
   * written, and all sockets are closed: exit.
   */
  run(signal?: AbortSignal): Promise<void>;
  /**
   * Closes every socket, evenly over half of `drainMs`, releases every claim, says goodbye and closes the
   * connections, within `drainMs`. Nothing registers any more.
   */
  stop(): Promise<void>;
  /**
   * Claims an id, and never waits. This call is the socket's handshake: of all sockets of an id, on all replicas,
   * the newest handshake wins, and the others are closed. Throws a TypeError without `close`.
   */
  register(id: string, socket: Socket): Claim;
  status(): Status;
  lookup(id: string): Promise<Owner | null>;
  lookupMany(ids: Iterable<string>): Promise<Map<string, Owner>>;
  owners(): Promise<Owner[]>;
  holdings(instance: string): AsyncIterable<string>;
}
