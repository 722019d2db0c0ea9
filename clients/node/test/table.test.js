// What a Table does at the size of a large server.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { now } from '../lib/clock.js';
import { Table } from '../lib/table.js';

test('a batch walks each queue once, however many keys have left its front', () => {
  const table = new Table('a', 30_000, 90_000);
  let walks = 0;
  class Counted extends Set {
    [Symbol.iterator]() { walks++; return super[Symbol.iterator](); }
  }
  table.urgent = new Counted();
  table.checks = new Counted();
  for (let i = 0; i < 1000; i++) table.register({ id: `key-${i}`, made: now(), at: null, land() {}, end() {} });
  for (let urgent = 2; urgent > 0; urgent--) {
    const b = table.next();
    assert.equal(b.register.length, 500);
    table.wrote(b.register, { foreign: new Map() }, null);
    table.ended(false);
  }
  assert.ok(walks <= 4, `${walks} walks for two batches`);
  table.checkAll();
  assert.equal(table.next().check.length, 500);
});
