import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';

/**
 * callTimeout bounds one call in milliseconds, unless a connection has less patience. A call that
 * takes longer ends its connection, and may still land.
 */
export const callTimeout = 3000;

/** Where the package has its Lua files, and where a clone has them: npm pack copies them. */
const folders = ['../lua/', '../../../registry/', '../../../internal/guard/'];

function read(file) {
  const places = folders.map((folder) => new URL(`${folder}${file}.lua`, import.meta.url));
  return readFileSync(places.find(existsSync) ?? places[0], 'utf8');
}

/** The files that make each script, as in registry/writer.go. */
const files = {
  boot: 'settings former record boot', here: 'former record owner here', beat: 'settings former record owner beat',
  full: 'settings former record owner beat', register: 'former record owner register', release: 'former record owner release',
  heal: 'settings former record owner heal', goodbye: 'former record owner goodbye', lookup: 'former lookup',
};

const scripts = new Map(Object.entries(files).map(([name, parts]) => {
  const lua = parts.split(' ').map(read).join('');
  const text = (name === 'full' ? '#!lua flags=allow-oom\n' : '') + lua;
  return [name, { text, sha: createHash('sha1').update(text).digest('hex') }];
}));

/**
 * A Connection is one connection of its own to the server of an ioredis or node-redis client. It
 * never repeats a command: a repeated write could land after the write that corrected it. A client
 * that loses its connection, or gets no answer, is replaced. The libraries themselves wait for an
 * answer until the kernel gives up, about a quarter of an hour, and for a handshake for ever.
 */
export class Connection {
  client = null; // while it is connected
  lose = () => {}; // makes the connection anew
  down = new Error('not connected to Redis');
  closed = false;
  opening = callTimeout; // for a new client
  patience = callTimeout; // for a call
  changed = () => {}; // gets null if a client has connected, and an error if it is lost or cannot connect
  readOnly = () => {}; // gets the answer of a server that has become a replica

  /** interval is in ms, between pings. A connection with a channel only listens. */
  constructor(client, interval, channel = '', onMessage = null) {
    this.io = typeof client?.defineCommand === 'function' && !client.isCluster;
    if (this.io) {
      this.opening *= 1 + (client.options.sentinels?.length ?? 0); // asked one after the other
      this.make = () => client.duplicate({
        enableOfflineQueue: false, lazyConnect: true, retryStrategy: null, keyPrefix: '',
        connectTimeout: callTimeout, sentinelCommandTimeout: callTimeout,
        // If the library itself gave up a call, its connection would stay in use. In ioredis 5.0,
        // automatic pipelines break call.
        commandTimeout: undefined, socketTimeout: undefined, enableAutoPipelining: false,
      });
    } else if (typeof client?.duplicate === 'function' && typeof client.ref === 'function') { // a Cluster has no ref
      this.make = () => client.duplicate({
        disableOfflineQueue: true, legacyMode: false, commandOptions: undefined,
        socket: { ...client.options?.socket, connectTimeout: callTimeout, socketTimeout: undefined, reconnectStrategy: false },
      });
    } else {
      throw new TypeError('redis: expected a client of ioredis for one server or a Sentinel, or of node-redis for one server');
    }
    Object.assign(this, { interval, channel, onMessage });
  }

  /** open keeps a client connected until close. It returns after the first attempt, for which calls wait. */
  open() {
    return (this.tried = new Promise((tried) => this.keep(tried)));
  }

  async keep(tried) {
    while (!this.closed) {
      let lose, timer, pause = Math.min(this.interval / 10, 1000);
      const client = this.make(), lost = new Promise((_, reject) => (lose = this.lose = reject));
      const arrived = new Promise((resolve) => client.once('connect', resolve));
      client.on('error', lose).once('end', () => lose(new Error('Redis closed the connection')));
      try {
        await bounded(Promise.race([lost, this.connect(client)]), this.opening);
        this.client = client;
        pause = 0;
        // ioredis allows a subscriber ping, but not PING.
        timer = setInterval(() => this.send('ping').catch(() => {}), this.interval).unref();
        this.changed(null);
        tried();
        await lost;
      } catch (err) {
        this.client = null;
        this.down = new Error(`not connected to Redis: ${err.message || err.code}`, { cause: err });
        if (this.channel && refused.test(err?.message)) pause = this.interval;
      }
      clearInterval(timer);
      // node-redis cannot be closed before the socket is there: it would connect all the same.
      if (this.io) client.disconnect();
      else arrived.then(() => (client.destroy ? client.destroy() : client.disconnect())).catch(() => {});
      if (!this.closed && !isReadOnly(this.down.cause)) this.changed(this.down);
      tried();
      await new Promise((resolve) => setTimeout(resolve, pause).unref());
    }
    tried();
  }

  async connect(client) {
    await client.connect();
    if (!this.channel) return;
    if (!this.io) return client.subscribe(this.channel, this.onMessage);
    client.on('message', (_, message) => this.onMessage(message));
    return client.subscribe(this.channel);
  }

  /** send runs one command. */
  async send(...args) {
    await this.tried;
    const { client } = this, words = args.map(String);
    if (!client) throw this.down;
    try {
      return await bounded(this.io ? client.call(...words) : client.sendCommand(words), this.patience, this.lose);
    } catch (err) {
      if (isReadOnly(err)) this.readOnly(err);
      throw err;
    }
  }

  /** run runs a script. */
  async run(name, keys, args) {
    const { text, sha } = scripts.get(name);
    try {
      return await this.send('EVALSHA', sha, keys.length, ...keys, ...args);
    } catch (err) {
      if (!String(err?.message).startsWith('NOSCRIPT')) throw err;
      return this.send('EVAL', text, keys.length, ...keys, ...args);
    }
  }

  close() {
    this.closed = true;
    this.client = null;
    this.lose(new Error('the connection was closed'));
  }
}

/** tag begins the names of channels, since Pub/Sub knows no databases. */
export function tag(client) {
  const db = client.options?.db ?? client.options?.database ?? 0;
  return db > 0 ? `db${db}:` : '';
}

/** bounded bounds a call. After a block of the event loop, the answer is read before time is up. */
export function bounded(call, ms, onLate) {
  let timer, last;
  const late = new Promise((_, reject) => {
    const end = () => {
      const err = new Error('no answer within ' + ms + ' ms');
      onLate?.(err);
      reject(err);
    };
    timer = setTimeout(() => (last = setImmediate(end)), ms);
  });
  call.catch(() => {}); // an answer that comes too late is an error that nobody waits for
  return Promise.race([call, late]).finally(() => {
    clearTimeout(timer);
    clearImmediate(last);
  });
}

export function isReadOnly(err) {
  return /^-?READONLY /.test(err?.message);
}

/** answered returns whether Redis itself answered with an error: then the command did nothing. */
export function answered(err) {
  return /^(-)?[A-Z]+ /.test(String(err?.message));
}

/** refused matches answers that stay the same until somebody mends something, such as rights. */
export const refused = /^-?(NOPERM|NOAUTH|WRONGPASS) /;
