// A process whose listener of a replica's event throws, as a program for replica.test.js. It prints what
// it caught.
import Redis from 'ioredis';

import { Replica } from '../lib/replica.js';

process.on('uncaughtException', (err) => console.log(err.message));
const redis = new Redis({ port: Number(process.argv[2]), host: '127.0.0.1', lazyConnect: true, retryStrategy: () => 20 });
redis.on('error', () => {});
const replica = new Replica({ redis, prefix: 'listener:', instance: 'node-1', intervalMs: 60, ttlMs: 600 });
replica.on('failing', (operation) => { throw new Error(`${operation}: a mistake`); });
await replica.start();
replica.register('a', { close() {} });
