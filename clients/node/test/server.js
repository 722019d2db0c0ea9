// A redis-server of its own for each test file, on a free port of the loopback.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import Redis from 'ioredis';
import { createClient } from 'redis';

import { now } from '../lib/clock.js';

export async function startServer() {
  const port = await freePort(), dir = mkdtempSync(join(tmpdir(), 'rollcall-node-'));
  const args = ['--port', port, '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', '--dir', dir];
  let child;
  const server = {
    port,
    async start() {
      child = spawn(process.env.REDIS_SERVER ?? 'redis-server', args.map(String), { stdio: 'ignore' });
      await until(() => answers(port));
    },
    async kill() {
      const ended = new Promise((resolve) => child.once('exit', resolve));
      child.kill('SIGKILL');
      await ended;
    },
    async stop() {
      await server.kill();
      rmSync(dir, { recursive: true, force: true });
    },
  };
  await server.start();
  return server;
}

/** startProxy passes connections on to a server on this host, until they must get no more answers. */
export async function startProxy(to) {
  const open = new Set();
  const proxy = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (client) => {
    open.add(client);
    client.on('error', () => {});
    if (state.silent) return;
    const server = connect({ port: state.to, host: '127.0.0.1', allowHalfOpen: true });
    open.add(server);
    server.on('error', () => {});
    client.pipe(server).pipe(client);
  });
  const state = {
    to, // for new connections, as silent
    silent: false,
    vanish() { for (const socket of open) socket.unpipe().pause(); }, // those that are open
    stop() {
      proxy.close();
      for (const socket of open) socket.destroy();
    },
  };
  await new Promise((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  return Object.assign(state, { port: proxy.address().port });
}

/** clients makes a client of each library, and closes it when the test has ended. */
export const clients = {
  ioredis(t, port) {
    const client = new Redis({ port, host: '127.0.0.1', lazyConnect: true, retryStrategy: () => 20 });
    client.on('error', () => {});
    t.after(() => client.disconnect());
    return client;
  },
  'node-redis'(t, port) {
    const client = createClient({ socket: { port, host: '127.0.0.1', reconnectStrategy: () => 20 } });
    client.on('error', () => {});
    return client;
  },
};

/** until waits for what comes about by itself. */
export async function until(cond, text = String(cond)) {
  for (const end = Date.now() + 30_000; Date.now() < end; ) {
    if (await cond()) return;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  throw new Error('never came about: ' + text);
}

/**
 * older waits until a claim has landed, and any handshake from now on is the newer one at every owner: each
 * knows the server's time only to half a round trip.
 */
export async function older(claim) {
  await claim.landed;
  await until(() => now() - claim.made > 200);
  return claim;
}

function freePort() {
  return new Promise((resolve) => {
    const s = createServer().listen(0, '127.0.0.1', () => {
      const { port } = s.address();
      s.close(() => resolve(port));
    });
  });
}

function answers(port) {
  return new Promise((resolve) => {
    const s = connect(port, '127.0.0.1', () => s.end('PING\r\n'));
    s.once('data', (d) => resolve(String(d).startsWith('+PONG')));
    s.once('error', () => resolve(false));
  });
}

/** nobody has an owner register sockets that nobody minds where none is given. */
export function nobody(owner) {
  const register = owner.register.bind(owner);
  owner.register = (key, socket = { close() {} }) => register(key, socket);
  return owner;
}

/** prefix is that of a test's keys. */
export function prefix(t) { return `${t.name.replace(/\W/g, '-')}:`; }
