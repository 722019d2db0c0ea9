// A process whose listener of an owner's event throws, as a program for owner.test.js. It prints what
// it caught.
import Redis from 'ioredis';

import { Owner } from '../lib/owner.js';

process.on('uncaughtException', (err) => console.log(err.message));
const redis = new Redis({ port: Number(process.argv[2]), host: '127.0.0.1', lazyConnect: true, retryStrategy: () => 20 });
redis.on('error', () => {});
const owner = new Owner({ redis, prefix: 'listener:', instance: 'node-1', interval: 60, ttl: 600 });
owner.on('failing', (operation) => { throw new Error(`${operation}: a mistake`); });
await owner.start();
owner.register('a', { close() {} });
