// A replica as a process, for test/owners: commands on stdin and events on stdout, a line of JSON each.
// Its environment has REDIS_PORT, INSTANCE, INTERVAL and TTL in ms.
import { createInterface } from 'node:readline';

import Redis from 'ioredis';

import { ReplacedError, Replica } from '../lib/replica.js';

const { REDIS_PORT, REDIS_DB, INSTANCE, INTERVAL, TTL } = process.env;
const say = (event, more = {}) => process.stdout.write(JSON.stringify({ event, ...more }) + '\n');
const redis = new Redis({ port: Number(REDIS_PORT), db: Number(REDIS_DB), host: '127.0.0.1', lazyConnect: true, retryStrategy: () => 50 });
const replica = new Replica({ redis, instance: INSTANCE, intervalMs: Number(INTERVAL), ttlMs: Number(TTL) });
replica.on('reconciled', () => say('reconciled'));
replica.on('failing', (what, err) => process.stderr.write(`${what}: ${err.message}\n`));

const claims = new Map();
const commands = {
  register({ key, ping }) {
    const socket = { close: () => say('closed', { key, owner: claim.signal.reason.to ?? '' }) };
    if (ping) socket.ping = () => (ping === 'answers' ? Promise.resolve() : Promise.reject(new Error('no pong')));
    const claim = replica.register(key, socket);
    claims.set(key, claim);
    claim.landed.then(() => say('landed', { key }), () => {});
  },
  release: ({ key }) => claims.get(key).release(),
  touch: ({ key }) => claims.get(key).touch(),
  stop: () => replica.stop(),
};

await replica.start();
replica.run().then(() => process.exit(0), (err) => process.exit(err instanceof ReplacedError ? 3 : 1));
say('started');
createInterface({ input: process.stdin }).on('line', (line) => {
  const command = JSON.parse(line);
  commands[command.do](command);
});
