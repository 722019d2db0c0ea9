import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

/** callTimeout bounds one call in milliseconds. One that takes longer ends its connection, and may still land. */
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
  #closed = false;
  #dialled = 0; // how often the connection was made anew

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

  /** open connects. The client keeps trying by itself, and open returns after the first attempt. */
  async open() {
    let heard;
    const failed = new Promise((resolve) => this.#client.once('error', (heard = resolve))); // node-redis' connect goes on
    await Promise.race([failed, this.#client.connect().catch(() => {})]); // reported by the client's error event
    this.#client.off('error', heard);
  }

  /** send runs one command. */
  send(...args) {
    const words = args.map(String);
    return this.#bounded(this.#io ? this.#client.call(...words) : this.#client.sendCommand(words));
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

  /** subscribe calls onMessage with each message of a channel. It may be called again. */
  async subscribe(channel, onMessage) {
    if (this.#io) {
      this.#client.removeAllListeners('message').on('message', (from, message) => from === channel && onMessage(message));
      await this.#bounded(this.#client.subscribe(channel));
    } else {
      await this.#bounded(this.#client.subscribe(channel, onMessage));
    }
  }

  #bounded(call) {
    let timer;
    const dialled = this.#dialled;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => {
        this.#redial(dialled);
        reject(new Error(`Redis did not answer within ${callTimeout} ms`));
      }, callTimeout);
    });
    call.catch(() => {}); // an answer that comes too late is an error that nobody waits for
    return Promise.race([call, late]).finally(() => clearTimeout(timer));
  }

  /** redial gives up a connection. If its peer has vanished, the kernel would take a quarter of an hour. */
  #redial(dialled) {
    if (this.#closed || dialled !== this.#dialled) return;
    this.#dialled++;
    if (this.#io) return void this.#client.disconnect(true);
    try {
      this.#leave();
    } catch {} // it is closed already
    this.open();
  }

  close() {
    this.#closed = true;
    if (this.#io) this.#client.disconnect();
    else this.#leave();
  }

  #leave() {
    if (this.#client.destroy) this.#client.destroy();
    else this.#client.disconnect().catch(() => {}); // node-redis 4
  }
}

/** refused returns whether Redis itself answered with an error: then the command did nothing. */
export function refused(err) {
  return /^(-)?[A-Z]+ /.test(String(err?.message));
}
