// One process of an application on Bull: node bull.mjs FOLDER PORT. It does what bullmq.mjs does.
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'

const [folder, port] = process.argv.slice(2)
const Bull = createRequire(folder + '/')('bull')
const redis = { host: '127.0.0.1', port: Number(port) }
const say = (what) => process.stdout.write(JSON.stringify(what) + '\n')
const names = ['mail', 'pay']
const open = (name) => new Bull(name, {
  redis, settings: { lockDuration: 3000, stalledInterval: 1000, maxStalledCount: 100 },
  defaultJobOptions: { removeOnComplete: { age: 3600, count: 20 }, removeOnFail: { age: 3600, count: 20 } }
})
const queues = Object.fromEntries(names.map((name) => [name, open(name)]))

const commands = {
  // work runs jobs. One that is slow never ends, until its worker is killed.
  async work () {
    for (const name of names) {
      queues[name].process('x', 5, async (job) => {
        await job.log('a line')
        if (job.data.slow) await new Promise(() => {})
        say({ done: name + ':' + job.id })
        if (job.data.bad) throw new Error('bad')
      })
    }
    await Promise.all(names.map((name) => queues[name].isReady()))
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
    await queues.mail.add('x', {}, { delay: 3600_000 })
    await queues.mail.add('x', {}, { delay: 3600_000, jobId: 'one-of-ours' })
    await queues.mail.add('x', {}, { repeat: { every: 3600_000 } })
    const held = open('held')
    await held.pause()
    await held.add('x', {})
    await held.add('x', {}, { jobId: 'e0d1a6a6-8d54-4b5e-9a3f-0d4d4c9a0c11' })
    await held.add('x', {}, { priority: 5 })
    await held.close()
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const { op, ...args } = JSON.parse(line)
  say({ op, ok: (await commands[op](args)) ?? true })
}
process.exit(0)
