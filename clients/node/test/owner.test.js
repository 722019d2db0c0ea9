import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { after, before, describe, test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

import Redis from 'ioredis';

import { Owner, SupersededError } from '../lib/owner.js';
import { unword, word } from '../lib/table.js';
import { clients, startServer, until } from './server.js';

const interval = 60, ttl = 600; // ms

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
      const o = new Owner({ redis: client(t, server.port), prefix: `${t.name}:`, interval, ttl, ...options });
      for (const [event, f] of Object.entries(on)) o.on(event, f);
      t.after(() => o.stop());
      await o.start();
      return o;
    };
    const entry = (t, key) => redis.hget(`${t.name}:connections:registry`, key);

    test('registers, looks up, releases', async (t) => {
      const o = await owner(t, { instance: 'node-1' });
      const claim = o.register('alice');
      await claim.landed;
      assert.equal(await entry(t, 'alice'), 'node-1');
      assert.deepEqual(await o.lookup('alice'), { owner: 'node-1', alive: true });
      assert.equal(await o.lookup('bob'), null);
      assert.deepEqual(await redis.smembers(`${t.name}:instances:roster`), ['node-1']);
      assert.deepEqual(await redis.smembers(`${t.name}:instance:devices:node-1`), ['alice']);
      assert.equal(await o.heartbeat(), true);
      o.unregister('alice');
      await until(async () => (await entry(t, 'alice')) === null);
    });

    test('thousands at once', async (t) => {
      const o = await owner(t, { instance: 'node-1' });
      await Promise.all(Array.from({ length: 3000 }, (_, i) => o.register(`user-${i}`).landed));
      assert.equal(await redis.hlen(`${t.name}:connections:registry`), 3000);
      await o.unregisterAll();
      assert.equal(await redis.hlen(`${t.name}:connections:registry`), 0);
    });

    test('puts back what was lost', async (t) => {
      const o = await owner(t, { instance: 'node-1' });
      await Promise.all(['a', 'b', 'c'].map((key) => o.register(key).landed));
      await redis.del(`${t.name}:connections:registry`, `${t.name}:instance:devices:node-1`, `${t.name}:instance:heartbeat:node-1`);
      await until(async () => (await redis.hlen(`${t.name}:connections:registry`)) === 3);
      await redis.hdel(`${t.name}:connections:registry`, 'b'); // a single one: within ten beats
      await until(async () => (await entry(t, 'b')) === 'node-1');
      await redis.srem(`${t.name}:instance:devices:node-1`, 'c');
      await until(async () => (await redis.scard(`${t.name}:instance:devices:node-1`)) === 3);
    });

    test('tells when everything is back', async (t) => {
      await redis.hset(`${t.name}:janitor:witness`, { since: 1, lost: 1, reason: 'gap' });
      const missing = []; // of the entries, at each event
      const o = await owner(t, { instance: 'node-1', ttl: 60_000 }, { // no stall of the machine is a loss
        reconciled: async () => missing.push(2000 - (await redis.hlen(`${t.name}:connections:registry`))),
      });
      await Promise.all(Array.from({ length: 2000 }, (_, i) => o.register(`user-${i}`).landed));
      for (let i = 0; i < 3; i++) await o.heartbeat();
      await until(() => o.table.restored);
      assert.deepEqual(missing, [], 'nothing was lost');
      await redis.flushall();
      await until(() => missing.length > 0);
      await redis.hdel(`${t.name}:connections:registry`, 'user-7');
      await until(() => missing.length > 1);
      assert.deepEqual(missing, [0, 0]);
    });

    test('the newer socket of a key wins', async (t) => {
      const o = await owner(t, { instance: 'node-1' });
      const older = o.register('alice'), newer = o.register('alice');
      assert.equal(older.signal.aborted, true);
      await newer.landed;
      older.release(); // late
      await o.heartbeat();
      assert.equal(await entry(t, 'alice'), 'node-1');
      assert.equal(o.status().held, 1);
    });

    test('a registration moves the key, the late release of the former owner undoes nothing', async (t) => {
      const a = await owner(t, { instance: 'node-a' }), b = await owner(t, { instance: 'node-b' });
      await a.register('alice').landed;
      await b.register('alice').landed;
      assert.equal(await entry(t, 'alice'), 'node-b');
      await a.unregisterAll();
      assert.equal(await entry(t, 'alice'), 'node-b');
    });

    test('an entry that names another owner is taken back on evidence alone', async (t) => {
      const a = await owner(t, { instance: 'node-a' });
      await owner(t, { instance: 'node-b' });
      const claim = a.register('alice');
      await claim.landed;
      await redis.hset(`${t.name}:connections:registry`, 'alice', 'node-b');
      await until(() => a.table.devices.get('alice').state === 'foreign');
      claim.received(); // nothing was acknowledged before it
      assert.equal(a.table.devices.get('alice').state, 'foreign');
      claim.acked();
      claim.received();
      await until(async () => (await entry(t, 'alice')) === 'node-a');
    });

    test('an entry of a dead owner is overwritten without evidence', async (t) => {
      const o = await owner(t, { instance: 'node-1', ttl: 300 });
      await o.register('alice').landed;
      await redis.hset(`${t.name}:connections:registry`, 'alice', 'long-gone');
      await until(async () => (await entry(t, 'alice')) === 'node-1');
    });

    test('who heard a key earlier is told that it is displaced', async (t) => {
      const told = [];
      const a = await owner(t, { instance: 'node-a' }, { displaced: (d) => told.push(d) });
      const b = await owner(t, { instance: 'node-b' });
      await a.register('alice/1 2').landed;
      await b.register('alice/1 2').landed;
      await until(() => told.length > 0);
      assert.deepEqual(told, [{ key: 'alice/1 2', owner: 'node-b' }]);
    });

    test('a newer process of the same id ends the older one', async (t) => {
      const ended = [];
      const older = await owner(t, { instance: 'node-1' }, { superseded: (err) => ended.push(err) });
      await older.register('alice').landed;
      await owner(t, { instance: 'node-1' });
      await assert.rejects(older.ended, SupersededError);
      assert.equal(ended.length, 1);
      await until(async () => (await entry(t, 'alice')) === null, 'the newer one hands back what it does not hold');
      await assert.rejects(older.register('bob').landed);
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

    test('a stop says goodbye', async (t) => {
      const o = await owner(t, { instance: 'node-1' });
      await o.register('alice').landed;
      await o.stop();
      await o.stop();
      assert.deepEqual(await redis.keys(`${t.name}:*`), []);
    });

    test('Redis dies and comes back empty', async (t) => {
      const events = [];
      const o = await owner(t, { instance: 'node-1' }, {
        failing: (what) => events.push(what), recovered: (what) => events.push('+' + what), reconciled: () => events.push('reconciled'),
      });
      await o.register('alice').landed;
      await server.kill();
      const while_away = o.register('bob');
      await until(() => events.includes('heartbeat'));
      events.length = 0;
      await server.start();
      await while_away.landed;
      await until(async () => (await entry(t, 'alice')) === 'node-1' && (await entry(t, 'bob')) === 'node-1');
      await until(() => events.includes('+heartbeat'));
      await until(() => Object.keys(o.status().failing).length === 0);
      await until(() => events.includes('reconciled'));
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

test('settings that are wrong are refused by name', () => {
  const client = new Redis({ lazyConnect: true });
  assert.throws(() => new Owner({ redis: {} }), /redis: expected/);
  assert.throws(() => new Owner({ redis: client, instance: 'a b' }), /instance: expected/);
  assert.throws(() => new Owner({ redis: client, interval: 1000, ttl: 2000 }), /ttl: expected/);
});

test('a key that is too long is refused', async () => {
  const o = new Owner({ redis: new Redis({ lazyConnect: true }) });
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
