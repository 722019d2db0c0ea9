import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

/** callTimeout bounds one call in milliseconds. A call that takes longer may still land. */
const callTimeout = 3000;

/** The files of ../lua that make each script, as in registry/scripts.go. */
const files = {
  boot: ['settings', 'boot'], beat: ['settings', 'owner', 'beat'], extend: ['owner', 'extend'],
  register: ['owner', 'register'], release: ['owner', 'release'], goodbye: ['owner', 'goodbye'],
  heal: ['server', 'settings', 'witness', 'owner', 'heal'], lookup: ['lookup'], same: ['same'],
};

const scripts = new Map(Object.entries(files).map(([name, parts]) => {
  const text = parts.map((file) => readFileSync(new URL(`../lua/${file}.lua`, import.meta.url), 'utf8')).join('');
  return [name, { text, sha: createHash('sha1').update(text).digest('hex') }];
}));

/**
 * A Connection is one connection of its own to the server of an ioredis or node-redis client. It never
 * repeats a command: a repeated write could land after the write that corrected it.
 */
export class Connection {
  #client;
  #io;

  constructor(client, onError) {
    this.#io = typeof client?.defineCommand === 'function';
    if (this.#io && !client.isCluster) {
      this.#client = client.duplicate({
        enableOfflineQueue: false, maxRetriesPerRequest: 0, autoResendUnfulfilledCommands: false,
        autoResubscribe: true, lazyConnect: true,
      });
    } else if (!this.#io && typeof client?.duplicate === 'function' && typeof client?.sendCommand === 'function') {
      this.#client = client.duplicate({ disableOfflineQueue: true });
    } else {
      throw new TypeError('redis: expected a client of ioredis or node-redis for one server or a Sentinel');
    }
    this.#client.on('error', onError);
  }

  /** open connects. ioredis keeps trying by itself, and open returns after the first attempt. */
  async open() {
    await this.#client.connect().catch(() => {}); // reported by the client's error event
  }

  /** send runs one command. */
  send(...args) {
    const words = args.map(String);
    return bounded(this.#io ? this.#client.call(...words) : this.#client.sendCommand(words));
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

  /** subscribe calls onMessage with each message of a channel, also after the connection broke. */
  async subscribe(channel, onMessage) {
    if (this.#io) {
      this.#client.on('message', (from, message) => from === channel && onMessage(message));
      await bounded(this.#client.subscribe(channel));
    } else {
      await bounded(this.#client.subscribe(channel, onMessage));
    }
  }

  close() {
    if (this.#io) this.#client.disconnect();
    else if (this.#client.destroy) this.#client.destroy();
    else this.#client.disconnect().catch(() => {}); // node-redis 4
  }
}

function bounded(call) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`Redis did not answer within ${callTimeout} ms`)), callTimeout);
  });
  call.catch(() => {}); // an answer that comes too late is an error that nobody waits for
  return Promise.race([call, late]).finally(() => clearTimeout(timer));
}

/** refused returns whether Redis itself answered with an error: then the command did nothing. */
export function refused(err) {
  return /^(-)?[A-Z]+ /.test(String(err?.message));
}
