// One process of an application on node-resque: node resque.mjs FOLDER PORT. It does what bullmq.mjs
// does.
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'

const [folder, port] = process.argv.slice(2)
const { Queue, Worker } = createRequire(folder + '/')('node-resque')
const connection = { pkg: 'ioredis', host: '127.0.0.1', port: Number(port), database: 0 }
const say = (what) => process.stdout.write(JSON.stringify(what) + '\n')
const jobs = {
  quick: { perform: async (name) => { say({ done: name }) } },
  slow: { perform: async (name) => { say({ done: name }); await new Promise(() => {}) } }
}

const commands = {
  // work pings once in 300 ms.
  async work () {
    const worker = new Worker({ connection, queues: ['mail'], timeout: 300 }, jobs)
    worker.on('error', (error) => console.error(error))
    await worker.connect()
    await worker.start()
  },
  async add ({ name, n, slow }) {
    const queue = new Queue({ connection }, jobs)
    await queue.connect()
    const added = Array.from({ length: n }, (_, i) => `${name}-${i}`)
    for (const job of added) await queue.enqueue('mail', slow ? 'slow' : 'quick', [job])
    await queue.end()
    return added
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const { op, ...args } = JSON.parse(line)
  say({ op, ok: (await commands[op](args)) ?? true })
}
process.exit(0)
