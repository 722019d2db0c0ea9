// What an owner takes over from the client that it is given, and what it must not.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import Redis from 'ioredis';
import { createClient } from 'redis';

import { Replica } from '../lib/replica.js';
import { clients, nobody, older, startProxy, startServer, until } from './server.js';

const silent = (client) => client.on('error', () => {});

async function setup(t) {
  const server = await startServer();
  const redis = silent(new Redis({ port: server.port, host: '127.0.0.1', retryStrategy: () => 20 }));
  t.after(async () => {
    redis.disconnect();
    await server.stop();
  });
  return { server, redis };
}

async function started(t, options, on = {}) {
  const o = nobody(new Replica({ instance: 'node-1', intervalMs: 60, ttlMs: 60_000, drainMs: 0, ...options }));
  for (const [event, f] of Object.entries(on)) o.on(event, f);
  t.after(() => o.stop());
  await o.start();
  return o;
}

for (const [library, client] of Object.entries({
  ioredis: (port) => new Redis({ port, host: '127.0.0.1', lazyConnect: true, commandTimeout: 200 }),
  'node-redis': (port) => createClient({ socket: { port, host: '127.0.0.1' }, commandOptions: { timeout: 200 } }),
})) {
  test(`${library}: a client with a timeout of its own does not keep a connection whose peer has vanished`, async (t) => {
    const { server } = await setup(t), proxy = await startProxy(server.port), back = new Set();
    t.after(() => proxy.stop());
    const o = await started(t, { redis: silent(client(proxy.port)) }, { recovered: (what) => back.add(what) });
    await o.register('alice').landed;
    back.clear();
    proxy.vanish();
    await until(() => back.has('connection') && back.has('heartbeat'));
  });
}

for (const [library, client] of Object.entries({
  ioredis: (port) => new Redis({ port, host: '127.0.0.1', lazyConnect: true, socketTimeout: 50 }),
  'node-redis': (port) => createClient({ socket: { port, host: '127.0.0.1', socketTimeout: 50 } }),
})) {
  test(`${library}: a connection that rests is not lost`, async (t) => {
    const { server, redis } = await setup(t), failed = [], beats = new Set();
    await started(t, { redis: silent(client(server.port)), intervalMs: 300 }, { failing: (what) => failed.push(what) });
    await until(async () => beats.add(await redis.get('instance:heartbeat:node-1')).size > 3);
    assert.deepEqual(failed, []);
  });
}

for (const [library, client] of Object.entries(clients)) {
  test(`${library}: a primary that has become a replica is left for the new one`, async (t) => {
    const { server, redis } = await setup(t), next = await setup(t), proxy = await startProxy(server.port), failed = [];
    t.after(() => proxy.stop());
    const o = await started(t, { redis: client(t, proxy.port) }, { failing: (what) => failed.push(what) });
    await o.register('alice').landed;
    await next.redis.config('SET', 'repl-diskless-sync-delay', '0');
    proxy.to = next.server.port; // as a name that resolves to another address
    await redis.replicaof('127.0.0.1', String(next.server.port));
    await until(async () => (await next.redis.hget('connections:registry', 'alice')) === 'node-1');
    await o.register('bob').landed;
    assert.ok(failed.length > 0 && !failed.includes('connection'), `${failed}: Redis can be reached`);
  });
}

for (const [library, client] of Object.entries(clients)) {
  test(`${library}: one beat without an answer is not the end of a heartbeat of three intervals`, async (t) => {
    const { server, redis } = await setup(t), proxy = await startProxy(server.port);
    t.after(() => proxy.stop());
    const back = new Set(), options = { redis: client(t, proxy.port), intervalMs: 1000, ttlMs: 3000 };
    const o = await started(t, options, { recovered: (what) => back.add(what) });
    assert.equal(await o._beat(), true);
    proxy.vanish();
    await until(async () => {
      assert.equal(await redis.exists('instance:heartbeat:node-1'), 1, 'the heartbeat has expired');
      return back.has('heartbeat');
    });
  });
}

const rights = /ACL SETUSER owner ([^`]*)/.exec(readFileSync(new URL('../README.md', import.meta.url), 'utf8'))[1].match(/[^\s'\\]+/g);

for (const [library, client] of Object.entries({
  ioredis: (port) => new Redis(`redis://owner:PASSWORD@127.0.0.1:${port}/3`, { lazyConnect: true }),
  'node-redis': (port) => createClient({ url: `redis://owner:PASSWORD@127.0.0.1:${port}/3` }),
})) {
  test(`${library}: the rights of the README suffice`, async (t) => {
    const { server, redis } = await setup(t), failed = [], told = [];
    await redis.select(3);
    await redis.acl('SETUSER', 'owner', ...rights.map((right) => right.replace('&', '&db3:')));
    const on = { failing: (what, err) => failed.push(`${what}: ${err.message}`) };
    const options = () => ({ redis: silent(client(server.port)), ttlMs: 600, drainMs: 10_000 });
    const a = await started(t, options(), on), b = await started(t, { ...options(), instance: 'node-2' }, on);
    for (const key of ['alice', 'bob', 'cyd']) await older(a.register(key, { close: () => told.push(key) }));
    await b.register('alice').landed;
    await until(() => told.includes('alice')); // notified, asked and answered
    await redis.hdel('connections:registry', 'bob');
    await redis.hset('janitor:beats', 'long-gone', '1/300/1/1/0/h');
    await redis.hset('connections:registry', 'cyd', 'long-gone');
    await until(async () => String(await redis.hmget('connections:registry', 'bob', 'cyd')) === 'node-1,node-1');
    assert.deepEqual(await a.lookup('alice'), { instance: 'node-2', live: true });
    await a.stop();
    await b.stop();
    assert.deepEqual(failed, []);
    assert.deepEqual((await redis.keys('*')).filter((key) => key !== 'janitor:witness'), ['janitor:beats']);
    const refusals = (await redis.acl('LOG')).map((entry) => entry[entry.indexOf('object') + 1]);
    assert.deepEqual(refusals.filter((what) => !what.startsWith('client')), []); // the libraries' own, which they do not need
  });
}
