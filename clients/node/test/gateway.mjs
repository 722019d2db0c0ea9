#!/usr/bin/env node
// A server of Node.js for the rows of package chaos: its clients are the simulated devices of package
// harness, over TCP. It has the settings, the log lines and the HTTP answers that the harness needs of a
// replica, and never leads.
import { createServer as createHTTP } from 'node:http';
import { createServer } from 'node:net';

import Redis from 'ioredis';

import { Replica } from '../lib/replica.js';

const { REDIS_URL, INSTANCE_ID, HEARTBEAT_INTERVAL, HEARTBEAT_TTL } = process.env;
const ms = (seconds) => Number(seconds.replace(/s$/, '')) * 1000;
const log = (msg, more) => console.log(JSON.stringify({ msg, ...more }));
const redis = new Redis(REDIS_URL);
redis.on('error', (err) => log('redis', { error: err.message }));
const replica = new Replica({ redis, instance: INSTANCE_ID, intervalMs: ms(HEARTBEAT_INTERVAL), ttlMs: ms(HEARTBEAT_TTL) });
for (const event of ['failing', 'recovered', 'healed', 'reconciled']) {
  replica.on(event, (what, err) => log(event, { what, error: err?.message }));
}
const sockets = new Set();
const devices = createServer((socket) => {
  let rest = Buffer.alloc(0), claim;
  sockets.add(socket);
  socket.on('error', () => {}); // close follows
  socket.on('close', () => {
    sockets.delete(socket);
    claim?.release();
  });
  const hello = async (key) => {
    claim = replica.register(key, { close: () => socket.destroy() });
    const late = new Promise((resolve) => setTimeout(resolve, 1000)); // it is served all the same
    await Promise.race([claim.landed.catch(() => late), late]);
    socket.write(Buffer.from([1]));
  };
  socket.on('data', (some) => {
    rest = Buffer.concat([rest, some]);
    if (!claim) {
      if (rest.length < 2 || rest.length < 2 + rest.readUInt16BE(0)) return;
      const end = 2 + rest.readUInt16BE(0), key = rest.toString('latin1', 2, end);
      rest = rest.subarray(end);
      hello(key);
      return;
    }
    claim.touch();
    while (rest.length >= 8 && rest.length >= 12 + rest.readUInt32BE(4)) {
      const records = rest[9]; // behind preamble, length and codec
      rest = rest.subarray(12 + rest.readUInt32BE(4));
      const answer = Buffer.alloc(4);
      answer.writeUInt32BE(records);
      socket.write(answer);
    }
  });
});

const http = createHTTP(async (request, response) => {
  if (request.url === '/metrics') return response.end('janitor_leader 0\nteltonika_registry_janitor_evicted_total 0\n');
  const beat = await redis.get('instance:heartbeat:' + INSTANCE_ID).catch(() => null);
  if (request.url === '/readyz') return response.writeHead(beat ? 200 : 503).end();
  const last_beat = new Date(parseInt(beat ?? '0', 10)).toISOString();
  response.end(JSON.stringify({ instance: INSTANCE_ID, ready: true, registry: { last_beat }, janitor: {} }));
});

const ending = new AbortController();
process.on('SIGTERM', () => {
  devices.close();
  for (const socket of sockets) socket.destroy();
  ending.abort();
});

const serve = (server, what) => new Promise((resolve) => server.listen(0, '127.0.0.1', () => {
  log(what, { language: 'node', addr: '127.0.0.1:' + server.address().port });
  resolve();
}));
await replica.start();
await serve(devices, 'listening for devices');
await serve(http, 'serving HTTP');
await replica.run(ending.signal).catch(() => {
  log('registry: replaced by a newer process with the same instance id');
  process.exitCode = 1;
});
process.exit();
