import { EventEmitter } from 'node:events';

import { complete } from './options.js';
import { Connection } from './redis.js';

/** batchSize bounds one script: about 0.5 ms of the server's time. */
export const batchSize = 500;

/** A Directory answers where ids are. Its fields are for Reader and Replica. */
export class Directory extends EventEmitter {
  _newest = 0; // when the newest beat was written, in ms by the server's clock; 0: unknown

  constructor(options, data) {
    super();
    this._o = options;
    this._data = data;
  }

  _key(name) { return this._o.prefix + name; }
  _heartbeat(instance) { return this._key('instance:heartbeat:' + instance); }

  async lookup(id) { return (await this.lookupMany([id])).get(id) ?? null; }

  async lookupMany(ids) {
    const found = new Map();
    await Promise.all([...chunks([...ids])].map(async (some) => {
      const [owners, asked, live] = await this._ask(some, this._heartbeat(''));
      some.forEach((id, i) => {
        const instance = owners[i];
        if (instance !== null) found.set(id, { instance, live: Number(live[asked.indexOf(instance)]) === 1 });
      });
    }));
    return found;
  }

  async owners() {
    const instances = new Set();
    for await (const some of this._scan('SSCAN', 'instances:roster')) for (const instance of some) instances.add(instance);
    return Promise.all([...instances].sort().map(async (instance) => {
      const live = Number(await this._data.send('EXISTS', this._heartbeat(instance))) === 1;
      return { instance, live };
    }));
  }

  async *holdings(instance) {
    for await (const ids of this._scan('SSCAN', 'instance:devices:' + instance)) {
      const [owners] = ids.length > 0 ? await this._ask(ids) : [[]];
      yield* ids.filter((_, i) => owners[i] === instance);
    }
  }

  /** ask reads the entries of ids and, with the prefix of heartbeats, whether their owners live. */
  _ask(ids, heartbeats = '') {
    const names = [this._key('connections:registry'), this._key('janitor:beats')];
    return this._data.run('lookup', names, [this._o.instance ?? '', this._newest, heartbeats, '0', ...ids]);
  }

  async *_scan(command, name) {
    let cursor = '0';
    do {
      const [next, page] = await this._data.send(command, this._key(name), cursor, 'COUNT', batchSize);
      yield page;
      cursor = String(next);
    } while (cursor !== '0');
  }
}

/** A Reader is a Directory for a process that holds no sockets. See ../index.d.ts. */
export class Reader extends Directory {
  constructor(options) {
    const o = complete(options);
    super(o, new Connection(o.redis, 30_000));
    this._data.open();
  }

  close() { this._data.close(); }
}

export function* chunks(list) {
  for (let i = 0; i < list.length; i += batchSize) yield list.slice(i, i + batchSize);
}
