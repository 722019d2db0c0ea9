// A redis-server of its own for each test file, on a free port of the loopback.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import Redis from 'ioredis';
import { createClient } from 'redis';

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

/** startProxy passes connections on to a server on this host, and can forget those that are open. */
export async function startProxy(to) {
  const open = new Set();
  const proxy = createServer((client) => {
    const server = connect(to, '127.0.0.1'), pair = { client, server, vanished: false };
    open.add(pair);
    for (const [from, other] of [[client, server], [server, client]]) {
      from.on('data', (data) => pair.vanished || other.write(data));
      from.on('close', () => pair.vanished || other.destroy());
      from.on('error', () => {});
    }
  });
  await new Promise((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  return {
    port: proxy.address().port,
    vanish() { for (const pair of open) pair.vanished = true; },
    stop() {
      proxy.close();
      for (const { client, server } of open) [client, server].forEach((s) => s.destroy());
    },
  };
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
