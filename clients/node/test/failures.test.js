// What an owner reports, and does, while something fails.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import Redis from 'ioredis';

import { Replica } from '../lib/replica.js';
import { Connection } from '../lib/redis.js';
import { nobody, prefix, startServer, until } from './server.js';

const intervalMs = 60, ttlMs = 60_000; // ms

let server, redis;
before(async () => {
  server = await startServer();
  redis = new Redis({ port: server.port, host: '127.0.0.1' });
});
after(async () => {
  redis.disconnect();
  await server.stop();
});

async function owner(t, options = {}, on = {}) {
  const o = nobody(new Replica({ redis, prefix: prefix(t), instance: 'node-1', intervalMs, ttlMs, drainMs: 0, ...options }));
  for (const [event, f] of Object.entries(on)) o.on(event, f);
  t.after(() => o.stop());
  await o.start();
  return o;
}

const entry = (t, key) => redis.hget(`${prefix(t)}connections:registry`, key);

/** fail has calls of a method of Connection fail for which when returns an error. */
function fail(t, method, when) {
  const f = Connection.prototype[method];
  t.mock.method(Connection.prototype, method, async function (...words) {
    const err = await when(...words);
    if (err) throw err;
    return f.apply(this, words);
  });
}

test('an option that is undefined, or null, has its default', async (t) => {
  const o = nobody(new Replica({ redis, prefix: undefined, intervalMs: undefined, ttlMs: undefined, drainMs: null, instance: null }));
  t.after(() => o.stop());
  await o.start();
  await o.register('alice').landed;
  assert.equal(await redis.hget('connections:registry', 'alice'), o.instance);
  assert.throws(() => new Replica(), /redis: expected/);
});

test('an index of another type hides no former life', async (t) => {
  await redis.set(`${prefix(t)}instance:devices:node-1`, 'x');
  await redis.hset(`${prefix(t)}connections:registry`, 'of a former life', 'node-1');
  const o = await owner(t);
  await until(async () => (await entry(t, 'of a former life')) === null);
  assert.match(o.status().failing.compare, /WRONGTYPE/);
});

test('an index that stays different is compared less and less often', async (t) => {
  await redis.set(`${prefix(t)}instance:devices:node-1`, 'x');
  let scans = 0, beats = 0;
  fail(t, 'send', (command) => { scans += command === 'SSCAN'; });
  fail(t, 'run', (name) => { beats += name === 'beat'; });
  await owner(t, { intervalMs: 300 });
  await until(() => beats === 10);
  assert.ok(scans <= 20, `${scans} scans in ten beats`);
});

test('a claim that ends while others are asked about it fails nothing', async (t) => {
  const keys = Array.from({ length: 600 }, (_, i) => `key-${i}`), failed = [];
  const o = await owner(t, {}, { failing: (what, err) => failed.push(`${what}: ${err.message}`) });
  const claims = keys.map((key) => o.register(key));
  await Promise.all(claims.map((claim) => claim.landed));
  let asked = 0;
  fail(t, 'send', (command) => {
    if (command === 'PUBLISH' && asked++ === 0) for (const claim of claims) claim.release();
  });
  o.table.asks.set('node-b', [...o.table.holdings.values()].map((d) => d.claim)); // more than one message
  o.table.talk();
  await until(() => asked > 0 && o.table.holdings.size === 0);
  for (let i = 0; i < 3; i++) await o._beat();
  assert.deepEqual(failed, []);
});

test('a dispute that lasts keeps no failure on the books', async (t) => {
  await redis.set(`${prefix(t)}instance:heartbeat:node-b`, '1/x', 'EX', 60); // it does not beat
  const o = await owner(t);
  await o.register('alice').landed;
  await redis.hset(`${prefix(t)}connections:registry`, 'alice', 'node-b');
  await until(() => o.table.holdings.get('alice').state === 'foreign');
  let failures = 0;
  fail(t, 'run', (name) => name === 'register' && failures++ === 0 && new Error('no answer'));
  await o.register('bob').landed;
  await until(() => failures > 0 && Object.keys(o.status().failing).length === 0);
  assert.equal(o.table.holdings.get('alice').state, 'foreign');
});

test('an owner without rights to what scripts omit in silence says so', async (t) => {
  await redis.acl('SETUSER', 'default', '-sadd', '-publish');
  t.after(() => redis.acl('SETUSER', 'default', '+sadd', '+publish'));
  const failed = [], back = [], reconciled = [];
  const o = await owner(t, {}, {
    failing: (what, err) => failed.push(`${what} ${err.message}`), recovered: (what) => back.push(what), reconciled: () => reconciled.push(1),
  });
  await until(() => failed.length === 2);
  assert.match(failed.sort().join('\n'), /^keep NOPERM.*SADD.*\nnotify NOPERM.*PUBLISH/);
  await redis.acl('SETUSER', 'default', '+sadd', '+publish');
  await until(() => back.length === 2);
  assert.deepEqual(o.status().failing, {});
});

test('a refusal is told although the operation failed before', async (t) => {
  const failed = [];
  let err = null;
  fail(t, 'run', (name) => name === 'beat' && err);
  const o = await owner(t, {}, { failing: (what, e) => failed.push(`${what} ${e.message}`) });
  for (const message of ['no answer', 'LOADING Redis is loading', 'NOPERM no rights', 'no answer', 'NOPERM no rights']) {
    err = new Error(message);
    assert.equal(await o._beat(), false);
  }
  assert.deepEqual(failed, ['heartbeat no answer', 'heartbeat NOPERM no rights', 'heartbeat NOPERM no rights']);
  err = null;
});

test('what a server that lacks the newest beat says is not believed', async (t) => {
  const o = await owner(t, { instance: 'node-1', intervalMs: 20_000, ttlMs: 60_000 });
  await o.register('alice').landed;
  const record = await redis.hget(`${prefix(t)}janitor:beats`, 'node-1');
  await redis.hset(`${prefix(t)}janitor:beats`, 'node-1', record.replace(/^\d+/, '5'));
  await assert.rejects(o.lookup('alice'), /^\w*Error: READONLY former primary/);
  await until(() => o._beat()); // repairs a server that was set back
  assert.deepEqual(await o.lookup('alice'), { instance: 'node-1', live: true });
});

test('a goodbye that fails is said again', async (t) => {
  const o = await owner(t, { drainMs: 10_000 });
  await o.register('alice').landed;
  let said = 0;
  fail(t, 'run', (name) => name === 'goodbye' && said++ === 0 && new Error('no answer'));
  await o.stop();
  assert.deepEqual(await redis.keys(`${prefix(t)}*`), [`${prefix(t)}janitor:beats`]);
});

test('nothing beats after the goodbye', async (t) => {
  const first = await owner(t, { drainMs: 10_000 });
  await first.stop(); // from now on Redis knows the script
  const o = await owner(t, { drainMs: 10_000 }), { run } = Connection.prototype;
  let late;
  t.mock.method(Connection.prototype, 'run', function (name, ...more) {
    const said = run.call(this, name, ...more);
    if (name === 'goodbye') late = o._beat();
    return said;
  });
  await o.stop();
  assert.equal(await late, false);
  assert.deepEqual(await redis.keys(`${prefix(t)}*`), [`${prefix(t)}janitor:beats`]);
});
