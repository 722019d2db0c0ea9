// One process of an application on BullMQ: node bullmq.mjs FOLDER PORT. It reads commands from its
// input, one JSON a line, and writes an answer for each, and {done: id} for each job that it ran.
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'

const [folder, port] = process.argv.slice(2)
const { Queue, Worker, FlowProducer } = createRequire(folder + '/')('bullmq')
const connection = { host: '127.0.0.1', port: Number(port), maxRetriesPerRequest: null }
const say = (what) => process.stdout.write(JSON.stringify(what) + '\n')
const names = ['mail', 'pay']
const remove = { age: 1, limit: 5 }
const queues = Object.fromEntries(names.map((name) => [
  name, new Queue(name, { connection, defaultJobOptions: { removeOnComplete: remove, removeOnFail: remove } })
]))
const workers = []

const commands = {
  // work runs jobs. One that is slow never ends, until its worker is killed.
  async work () {
    for (const name of names) {
      workers.push(new Worker(name, async (job) => {
        await job.log('a line')
        if (job.data.slow) await new Promise(() => {})
        say({ done: name + ':' + job.id })
        if (job.data.bad) throw new Error('bad')
      }, { connection, concurrency: 5, lockDuration: 3000, stalledInterval: 1000, maxStalledCount: 100 }))
    }
    await Promise.all(workers.map((worker) => worker.waitUntilReady()))
  },
  async add ({ n, data }) {
    const added = []
    for (const name of names) {
      const jobs = Array.from({ length: n }, (_, i) => ({ name: 'x', data: { ...data, bad: !data && i % 4 === 0 } }))
      added.push(...(await queues[name].addBulk(jobs)).map((job) => name + ':' + job.id))
    }
    return added
  },
  // kinds adds a job in each of the other states that one can be in, and never finishes any.
  async kinds () {
    const mail = queues.mail
    await mail.add('x', {}, { delay: 3600_000 })
    await mail.add('x', {}, { delay: 3600_000, jobId: 'one-of-ours' })
    await mail.upsertJobScheduler('hourly', { every: 3600_000 }, { name: 'x' })
    const held = new Queue('held', { connection })
    await held.pause()
    await held.add('x', {})
    await held.add('x', {}, { jobId: 'e0d1a6a6-8d54-4b5e-9a3f-0d4d4c9a0c11' })
    await held.add('x', {}, { priority: 5 })
    await held.add('x', {}, { deduplication: { id: 'logs' } })
    await new FlowProducer({ connection }).add({
      name: 'parent', queueName: 'held', children: [{ name: 'child', queueName: 'held' }]
    })
    await held.close()
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const { op, ...args } = JSON.parse(line)
  say({ op, ok: (await commands[op](args)) ?? true })
}
process.exit(0)
