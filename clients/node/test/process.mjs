// An owner as a process, for test/owners: commands on stdin and events on stdout, a line of JSON each.
// Its environment has REDIS_PORT, INSTANCE, INTERVAL and TTL in ms.
import { createInterface } from 'node:readline';

import Redis from 'ioredis';

import { Owner } from '../lib/owner.js';

const { REDIS_PORT, INSTANCE, INTERVAL, TTL } = process.env;
const say = (event, more = {}) => process.stdout.write(JSON.stringify({ event, ...more }) + '\n');
const redis = new Redis({ port: Number(REDIS_PORT), host: '127.0.0.1', lazyConnect: true, retryStrategy: () => 50 });
const owner = new Owner({ redis, instance: INSTANCE, interval: Number(INTERVAL), ttl: Number(TTL) });
owner.on('reconciled', () => say('reconciled'));
owner.on('replaced', () => process.exit(3));
owner.on('failing', (what, err) => process.stderr.write(`${what}: ${err.message}\n`));

const claims = new Map();
const commands = {
  register({ key, ping }) {
    const socket = { close: () => say('closed', { key, owner: claim.signal.reason.to ?? '' }) };
    if (ping) socket.ping = () => (ping === 'answers' ? Promise.resolve() : Promise.reject(new Error('no pong')));
    const claim = owner.register(key, socket);
    claims.set(key, claim);
    claim.landed.then(() => say('landed', { key }), () => {});
  },
  release: ({ key }) => claims.get(key).release(),
  touch: ({ key }) => claims.get(key).touch(),
  async stop() {
    await owner.stop();
    process.exit(0);
  },
};

await owner.start();
say('started');
createInterface({ input: process.stdin }).on('line', (line) => {
  const command = JSON.parse(line);
  commands[command.do](command);
});
