// The owner of clients/node with one thing wrong with it, which BREAK names: see broken_test.go.
const at = (file) => import(`${process.env.NODE}/${file}`);
const { Replica } = await at('lib/replica.js'), { Table } = await at('lib/table.js'), { Connection } = await at('lib/redis.js');

/** alter replaces a method by f, which gets the former one. */
function alter(of, method, f) {
  const was = of.prototype[method];
  of.prototype[method] = function (...args) { return f.call(this, was.bind(this), ...args); };
}

const running = (f) => alter(Connection, 'run', f);

const ways = {
  'record missing': () => alter(Replica, '_read', (was, got) => was({ ...got, found: got.found || got.last })),
  'loss recorded': () => alter(Replica, '_read', (was, got) => was({ ...got, lost: '' })),
  'registry missing': () => running((was, script, keys, args) => was(script, keys, script === 'beat' ? [...args.slice(0, -1), '0'] : args)),
  'late write': () => alter(Table, 'wrote', function (was, ops, ...more) {
    was(ops, ...more);
    for (const { d } of ops) d.late = 0;
    this.lateUntil = 0;
  }),
  'full memory': () => running(async (was, script, ...more) => {
    if (script === 'full') throw new Error('OOM as before');
    return was(script, ...more);
  }),
  'former life': () => alter(Replica, '_compare', async function (was) {
    if (this._ready) return was();
    [this._ready, this._scanDue, this._comparing] = [true, false, null];
  }),
  'former life, the registry': () => alter(Replica, '_compare', function (was) {
    this._ready ||= true;
    return was();
  }),
  'former life, the lease': () => alter(Connection, 'send', async (was, ...args) => (args[0] === 'SREM' ? 0 : was(...args))),
  'heals, one by one': () => { Table.prototype.checkShard = () => {}; },
  'heals, the index': () => { Table.prototype.indexDiffers = () => false; },
  'two owners': () => { Table.prototype.compare = () => []; },
  'plain writer': () => { Table.prototype.wasAsked = () => {}; },
  'plain writer, overwritten': () => running((was, script, ...more) => was(script === 'heal' ? 'register' : script, ...more)),
  'over the dead': () => alter(Table, 'next', (was) => ({ ...was(), outlive: [] })),
  goodbye: () => running(async (was, script, ...more) => (script === 'goodbye' ? ['OK', 1, 1, 0, '', 0, [], 0] : was(script, ...more))),
};

ways[process.env.BREAK]();
await at('test/process.mjs');
