import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { after, before, describe, test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

import Redis from 'ioredis';
import { RESP_TYPES, createClient, createCluster, createSentinel } from 'redis';

import { Clock, now } from '../lib/clock.js';
import { MovedError, NoAnswerError, Reader, Replica, ReplacedError, StoppingError, TakenError } from '../lib/replica.js';
import { Connection } from '../lib/redis.js';
import { Table, unword, word } from '../lib/table.js';
import { clients, nobody, older, prefix, startProxy, startServer, until } from './server.js';

const intervalMs = 60, ttlMs = 600; // ms

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc');

for (const [library, client] of Object.entries(clients)) {
  describe(library, () => {
    let server, redis;
    before(async () => {
      server = await startServer();
      redis = new Redis({ port: server.port, host: '127.0.0.1', retryStrategy: () => 20 });
      redis.on('error', () => {});
    });
    after(async () => {
      redis.disconnect();
      await server.stop();
    });

    const owner = async (t, options = {}, on = {}) => {
      const o = nobody(new Replica({ redis: client(t, server.port), prefix: prefix(t), intervalMs, ttlMs, ...options }));
      for (const [event, f] of Object.entries(on)) o.on(event, f);
      t.after(() => o.stop());
      await o.start();
      return o;
    };
    const listeners = async (t, id) => (await redis.pubsub('NUMSUB', `${prefix(t)}instance:heartbeat:${id}`))[1];
    const entry = (t, key) => redis.hget(`${prefix(t)}connections:registry`, key);

    test('registers, looks up, releases', async (t) => {
      const o = await owner(t, { instance: 'node-1' });
      const claim = o.register('alice');
      await claim.landed;
      assert.equal(await entry(t, 'alice'), 'node-1');
      assert.deepEqual(await o.lookup('alice'), { instance: 'node-1', live: true });
      assert.equal(await o.lookup('bob'), null);
      assert.deepEqual(await redis.smembers(`${prefix(t)}instances:roster`), ['node-1']);
      assert.deepEqual(await redis.smembers(`${prefix(t)}instance:devices:node-1`), ['alice']);
      assert.equal(await o._beat(), true);
      claim.release();
      await until(async () => (await entry(t, 'alice')) === null);
    });

    test('answers where many are, who there is, and what each holds', async (t) => {
      const a = await owner(t, { instance: 'node-a', ttlMs: 60_000 }), b = await owner(t, { instance: 'node-b', ttlMs: 60_000 });
      const ids = Array.from({ length: 1200 }, (_, i) => `user-${i}`);
      await Promise.all(ids.map((id, i) => (i < 700 ? a : b).register(id).landed));
      await redis.hset(`${prefix(t)}connections:registry`, 'ghost', 'gone');
      await redis.sadd(`${prefix(t)}instance:devices:node-a`, 'user-900'); // an index may say more
      const reader = new Reader({ redis: client(t, server.port), prefix: prefix(t) });
      t.after(() => reader.close());
      for (const directory of [a, reader]) {
        const found = await directory.lookupMany([...ids, 'ghost', 'nobody']);
        assert.equal(found.size, 1201);
        assert.deepEqual(ids.map((id) => found.get(id)), ids.map((_, i) => ({ instance: i < 700 ? 'node-a' : 'node-b', live: true })));
        assert.deepEqual(found.get('ghost'), { instance: 'gone', live: false });
        assert.deepEqual(await directory.owners(), [{ instance: 'node-a', live: true }, { instance: 'node-b', live: true }]);
        const held = new Set();
        for await (const id of directory.holdings('node-a')) held.add(id);
        assert.deepEqual(held, new Set(ids.slice(0, 700)));
      }
      assert.equal(await redis.exists(`${prefix(t)}instance:heartbeat:`), 0);
    });

    test('runs until its signal aborts', async (t) => {
      const o = nobody(new Replica({ redis: client(t, server.port), prefix: prefix(t), intervalMs, ttlMs })), ending = new AbortController();
      const ran = o.run(ending.signal), claim = o.register('alice');
      await claim.landed;
      ending.abort();
      await ran;
      assert.ok(claim.signal.reason instanceof StoppingError);
      assert.deepEqual(await redis.keys(`${prefix(t)}*`), [`${prefix(t)}janitor:beats`]);
      await new Replica({ redis: client(t, server.port), instance: 'never' }).run(AbortSignal.abort());
      assert.equal(await redis.exists('instance:heartbeat:never'), 0);
    });

    test('stops within its time although Redis hangs', async (t) => {
      const proxy = await startProxy(server.port);
      t.after(() => proxy.stop());
      const o = await owner(t, { redis: client(t, proxy.port), intervalMs: 5000, ttlMs: 60_000, drainMs: 1000 });
      const claim = o.register('alice');
      await claim.landed;
      proxy.vanish();
      await new Promise((resolve) => setTimeout(resolve, 600)); // a look or a beat is under way
      const began = now();
      await o.stop();
      assert.ok(now() - began < 2500, `${now() - began} ms`); // a call alone has three seconds
      assert.equal(claim.signal.aborted, true);
    });

    test('a claim says why it has ended', async (t) => {
      const o = await owner(t, { instance: 'node-1' });
      let closed = 0;
      const older = o.register('alice', { close: () => closed++ }), newer = o.register('alice');
      assert.ok(older.signal.reason instanceof MovedError && older.signal.reason.to === 'node-1');
      assert.equal(closed, 0, 'not within register');
      await assert.rejects(older.landed, MovedError);
      await newer.landed;
      assert.equal(closed, 1);
      older.release(); // late
      await o._beat();
      assert.equal(await entry(t, 'alice'), 'node-1');
      assert.equal(o.status().held, 1);
      await redis.set(`${prefix(t)}instance:heartbeat:plain`, '1');
      await redis.hset(`${prefix(t)}connections:registry`, 'alice', 'plain');
      await until(() => newer.signal.aborted);
      assert.ok(newer.signal.reason instanceof TakenError);
      const last = o.register('bob');
      await last.landed;
      await owner(t, { instance: 'node-1' });
      await assert.rejects(o.run(), ReplacedError);
      assert.ok(last.signal.reason instanceof ReplacedError);
      await assert.rejects(o.register('cyd').landed);
      assert.throws(() => o.register('bob', {}), TypeError);
      assert.throws(() => o.register(undefined, { close() {} }), /an id is a string, got undefined/);
    });

    test('keys that are the same in Redis are the same here', async (t) => {
      const o = await owner(t, { instance: 'node-1' });
      const older = o.register('alice\ud800'), newer = o.register('alice\udfff'); // no UTF-8 has them
      assert.equal(older.signal.aborted, true);
      await newer.landed;
      older.release();
      await o.register('bob').landed; // in a later batch
      assert.deepEqual(await redis.hkeys(`${prefix(t)}connections:registry`), ['alice\ufffd', 'bob']);
      newer.release();
      await until(async () => (await redis.hlen(`${prefix(t)}connections:registry`)) === 1);
    });

    test('a newer socket at another owner that never answers a ping loses', async (t) => {
      const slow = { intervalMs: 300, ttlMs: 60_000 }, closed = []; // no stall of the machine makes one a plain writer
      const a = await owner(t, { instance: 'node-a', ...slow }), b = await owner(t, { instance: 'node-b', ...slow });
      const first = await older(a.register('alice/1 2', { close: () => closed.push('node-a'), ping: async () => {} }));
      const second = b.register('alice/1 2', { close: () => closed.push('node-b'), ping: () => new Promise(() => {}) });
      await until(() => closed.length > 0);
      await until(async () => (await entry(t, 'alice/1 2')) === 'node-a');
      assert.ok(second.signal.reason instanceof NoAnswerError, second.signal.reason);
      assert.equal(first.signal.aborted, false);
      assert.deepEqual(closed, ['node-b']);
    });

    test('released claims are forgotten', async (t) => {
      const o = await owner(t, { instance: 'node-1' });
      const claims = [];
      for (let i = 0; i < 200; i++) {
        const claim = o.register(`user-${i}`);
        await claim.landed;
        claim.release();
        claims.push(new WeakRef(claim));
      }
      await until(() => {
        collect();
        return claims.filter((c) => c.deref()).length < 10;
      });
    });

    test('one that starts while Redis is away begins, and listens, when it is there', async (t) => {
      await server.kill();
      const a = await owner(t, { instance: 'node-a' });
      assert.match(a.status().failing.heartbeat, /ECONNREFUSED/);
      const claim = a.register('alice');
      await server.start();
      await older(claim);
      await until(() => Object.keys(a.status().failing).length === 0);
      const b = await owner(t, { instance: 'node-b' });
      await b.register('alice').landed;
      await until(() => claim.signal.aborted);
    });

    test('a subscription is made anew, and its loss is no loss of entries', async (t) => {
      const events = [], on = {};
      for (const event of ['failing', 'recovered', 'reconciled']) on[event] = (what) => events.push(`${event} ${what}`);
      const a = await owner(t, { instance: 'node-a', ttlMs: 60_000 }, on);
      await a.register('alice').landed;
      await redis.client('KILL', 'TYPE', 'pubsub');
      await until(() => events.length === 2);
      assert.equal(await listeners(t, 'node-a'), 1);
      for (let i = 0; i < 3; i++) await until(() => a._beat());
      await until(() => a.table.restored);
      await new Promise((resolve) => setTimeout(resolve, intervalMs));
      assert.deepEqual(events, ['failing listen', 'recovered listen']);
    });

    test('one that may not subscribe leaves Redis alone for an interval', async (t) => {
      await redis.acl('SETUSER', 'default', '-subscribe');
      t.after(() => redis.acl('SETUSER', 'default', '+subscribe'));
      const made = async () => Number(/total_connections_received:(\d+)/.exec(await redis.info('stats'))[1]), before = await made();
      const a = await owner(t, { instance: 'node-a', intervalMs: 5000, ttlMs: 60_000 });
      assert.match(a.status().failing.listen, /NOPERM/);
      await a.register('alice').landed;
      await new Promise((resolve) => setTimeout(resolve, 1200)); // two tenths of an interval
      assert.equal((await made()) - before, 3);
    });

    test('one that stops while it starts leaves no connection behind', async (t) => {
      const o = new Replica({ redis: client(t, server.port) });
      o.start();
      o.start();
      await o.stop();
      await new Promise((resolve) => setTimeout(resolve, 100));
      await until(async () => (await redis.client('LIST')).trim().split('\n').length === 1);
    });

    test('connections without an answer are made anew', async (t) => {
      const proxy = await startProxy(server.port);
      t.after(() => proxy.stop());
      proxy.silent = true;
      const options = { redis: client(t, proxy.port), instance: 'node-a', drainMs: 0 };
      const back = new Set();
      const a = await owner(t, options, { recovered: (what) => back.add(what) });
      assert.ok('heartbeat' in a.status().failing);
      proxy.silent = false;
      const claim = await older(a.register('alice'));
      await until(async () => (await listeners(t, 'node-a')) === 1);

      back.clear();
      proxy.vanish();
      await until(() => back.has('heartbeat') && back.has('connection') && back.has('listen'));
      const b = await owner(t, { instance: 'node-b' });
      await b.register('alice').landed;
      await until(() => claim.signal.aborted);
    });

    test('a blocked event loop is not a silent Redis', async (t) => {
      const o = await owner(t, { instance: 'node-1', ttlMs: 60_000 }), failed = [];
      o.on('failing', (what) => failed.push(what));
      await o._beat(); // the server knows the script
      const beat = o._beat();
      for (let turn = 0; turn < 3; turn++) await new Promise(setImmediate); // the beat is on its way
      for (const end = performance.now() + 3100; performance.now() < end; );
      assert.equal(await beat, true);
      assert.deepEqual(failed, []);
    });

    test('the beats go on during a long scan', async (t) => {
      let go;
      const gate = new Promise((resolve) => (go = resolve)), { send } = Connection.prototype;
      t.mock.method(Connection.prototype, 'send', async function (command, ...words) {
        if (command === 'HSCAN') await gate;
        return send.call(this, command, ...words);
      });
      t.after(() => go());
      owner(t, { instance: 'node-1' });
      const heartbeat = () => redis.get(`${prefix(t)}instance:heartbeat:node-1`), seen = new Set();
      await until(async () => seen.add(await heartbeat()).size > 3);
    });

    test('a registration while the last batch ends is written', async (t) => {
      let bob;
      const o = await owner(t, { instance: 'node-1', intervalMs: 5000, ttlMs: 60_000 }, { // no check wakes the writer
        async reconciled() {
          await null;
          bob = o.register('bob');
        },
      });
      const alice = o.register('alice');
      await alice.landed;
      await redis.hdel(`${prefix(t)}connections:registry`, 'alice');
      alice.touch();
      await until(() => bob);
      await until(async () => (await entry(t, 'bob')) === 'node-1');
    });

    test('a call that failed once does not fail for ever', async (t) => {
      const events = [], { send } = Connection.prototype;
      const b = await owner(t, { instance: 'node-b' });
      const a = await owner(t, { instance: 'node-a' }, {
        failing: (what) => events.push(what), recovered: (what) => events.push('+' + what),
      });
      await older(a.register('alice'));
      t.mock.method(Connection.prototype, 'send', async function (command, ...words) {
        if (command === 'PUBLISH' && events.length === 0) throw new Error('no');
        return send.call(this, command, ...words);
      });
      await b.register('alice').landed;
      await until(() => events.includes('+talk'));
      assert.deepEqual(a.status().failing, {});
    });

    test('nothing registers while it stops', async (t) => {
      const o = await owner(t, { instance: 'node-1' });
      await o.register('alice').landed;
      const stopped = o.stop();
      await assert.rejects(o.register('bob').landed, StoppingError);
      await stopped;
      assert.deepEqual(await redis.keys(`${prefix(t)}*`), [`${prefix(t)}janitor:beats`]);
    });

  });
}

test('an owner outlives what its listeners throw', async () => {
  const server = await startServer();
  const child = spawn(process.execPath, [new URL('listener.mjs', import.meta.url).pathname, server.port]);
  let caught = '';
  child.stdout.on('data', (text) => (caught += text));
  const redis = new Redis({ port: server.port, host: '127.0.0.1', retryStrategy: () => 20 });
  redis.on('error', () => {});
  const stands = async () => (await redis.hget('listener:connections:registry', 'a').catch(() => null)) === 'node-1';
  try {
    await until(stands);
    await server.kill();
    await until(() => caught.includes('heartbeat: a mistake'));
    await server.start();
    await until(stands);
  } finally {
    child.kill('SIGKILL');
    redis.disconnect();
    await server.stop();
  }
});

test('a handshake grows no younger', () => {
  for (const step of [3_600_000, -3_600_000, 0]) { // a suspended machine, or the server's clock
    const clock = new Clock(), older = { made: 1000, at: null }, newer = { made: 11_000, at: null };
    assert.equal(clock.agrees(5, 0), false);
    clock.read(1_000_000, 0, 0);
    clock.stamp(older);
    clock.read(1_012_000 + step, 12_000, 12_000);
    clock.stamp(newer);
    clock.read(1_012_500, 11_000, 12_100); // was under way for long
    assert.equal(clock.handshake(newer), 1_011_000 + step);
    assert.ok(clock.handshake(older) <= 1_001_000 && clock.handshake(newer) - clock.handshake(older) >= 10_000);
    assert.deepEqual([1001, 1000, -1000, -1001].map((d) => clock.agrees(clock.when(13_000) + d, 13_000)), [false, true, true, false]);
  }
});

test('settings that are wrong are refused by name', () => {
  const client = new Redis({ lazyConnect: true });
  const nodes = [{ host: '127.0.0.1', port: 1 }];
  const wrong = [{}, new Redis.Cluster(nodes, { lazyConnect: true }), createCluster({ rootNodes: [{ url: 'redis://127.0.0.1' }] }),
    createSentinel({ name: 'x', sentinelRootNodes: nodes })];
  for (const redis of wrong) assert.throws(() => new Replica({ redis }), /redis: expected/);
  assert.throws(() => new Replica({ redis: client, instance: 'a b' }), /instance: expected/);
  for (const prefix of ['a b:', 'a*:', '{a}{b}:', '{a:']) assert.throws(() => new Reader({ redis: client, prefix }), /prefix: expected/);
  assert.throws(() => new Replica({ redis: client, intervalMs: 1000, ttlMs: 2000 }), /ttlMs: expected/);
  assert.throws(() => new Replica({ redis: client, ttlMs: 90_000.5 }), /ttlMs: expected/);
  assert.throws(() => new Replica({ redis: client, drainMs: '10s' }), /drainMs: expected/);
  assert.throws(() => new Replica({ redis: client, interval: 30, ttl: 90 }), /^TypeError: interval: no such option.*intervalMs/);
  assert.throws(() => new Reader({ redis: client, instance: 'a' }), TypeError);
});

test('an error of several addresses has a message', async (t) => {
  const addresses = [{ address: '127.0.0.1', family: 4 }, { address: '::1', family: 6 }];
  const socket = { host: 'several', port: 1, lookup: (host, options, call) => call(null, addresses) };
  const o = new Replica({ redis: createClient({ socket }) });
  t.after(() => o.stop());
  await o.start();
  assert.match(o.status().failing.connection, /ECONNREFUSED/);
});

test('a start after the stop returns', async () => {
  const o = new Replica({ redis: new Redis({ lazyConnect: true }) });
  await o.stop();
  await o.start();
});

test('a key that is too long is refused', async () => {
  const o = nobody(new Replica({ redis: new Redis({ lazyConnect: true }) }));
  await assert.rejects(o.register('x'.repeat(1025)).landed, /1024 bytes/);
  assert.equal(o.status().held, 0);
});

test('words', () => {
  for (const key of ['', 'a', '/a', 'a/b', 'a b', '100%', '%20', 'é', '\n', '\x7f']) {
    assert.match(word(key), /^[^ /][^ ]*$/);
    assert.equal(unword(word(key)), key);
  }
  assert.equal(unword('50%'), '50%');
  assert.doesNotThrow(() => unword('%FF%C3 %')); // anybody may publish anything
});

test('a handshake of before the machine was suspended overwrites nothing', (t) => {
  const table = new Table('a', intervalMs, ttlMs), made = now(), wall = Date.now();
  table.register({ id: 'k', made, end() {} });
  t.mock.method(Date, 'now', () => wall + 60_000); // the other clock stood still
  const batch = table.next();
  assert.deepEqual([batch.register.length, batch.heal.length], [0, 1]);
  Date.now.mock.mockImplementation(() => wall - 60_000); // set back
  assert.ok(now() - made < 61_000 && now() - made >= 60_000);
});

test('a call of unknown fate may land after a suspension', (t) => {
  const table = new Table('a', intervalMs, ttlMs), claim = { id: 'k', made: now(), at: null, end() {} }, wall = Date.now();
  table.register(claim);
  table.wrote(table.next().register, null, new Error('no answer'));
  t.mock.method(Date, 'now', () => wall + 3_600_000);
  table.release(claim);
  table.wrote(table.next().release, { foreign: new Map() }, null);
  assert.ok(table.holdings.has('k'));
});

test('settings of the client that would break the owner are not taken over', async (t) => {
  const server = await startServer(), options = { port: server.port, host: '127.0.0.1' };
  const clients = [
    new Redis({ ...options, keyPrefix: 'mine:', lazyConnect: true, retryStrategy: null }),
    createClient({ socket: { ...options, reconnectStrategy: false }, commandOptions: { typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer } } }),
  ];
  t.after(() => server.stop());
  for (const redis of clients) {
    redis.on('error', () => {});
    const o = nobody(new Replica({ redis, intervalMs, ttlMs }));
    t.after(() => o.stop());
    await o.start();
    await o.register('alice').landed;
    assert.deepEqual(await o.lookup('alice'), { instance: o.instance, live: true });
    await server.kill();
    await until(() => 'heartbeat' in o.status().failing);
    await server.start();
    await until(() => Object.keys(o.status().failing).length === 0);
    await o.stop();
  }
});
