// One process of an application on Bee-Queue: node bee.mjs FOLDER PORT. It does what bullmq.mjs does.
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'

const [folder, port] = process.argv.slice(2)
const Queue = createRequire(folder + '/')('bee-queue')
const say = (what) => process.stdout.write(JSON.stringify(what) + '\n')
const queue = new Queue('mail', {
  redis: { host: '127.0.0.1', port: Number(port) }, removeOnSuccess: false, activateDelayedJobs: true, stallInterval: 1000
})

const commands = {
  async work () {
    queue.process(5, async (job) => {
      if (job.data.slow) await new Promise(() => {})
      say({ done: job.data.name })
      if (job.data.bad) throw new Error('bad')
    })
    queue.checkStalledJobs(1000)
    await queue.ready()
  },
  async add ({ name, n, slow, delay }) {
    const added = []
    for (let i = 0; i < n; i++) {
      const job = queue.createJob({ name: `${name}-${i}`, bad: !slow && i % 4 === 0, slow })
      if (delay) job.delayUntil(Date.now() + delay)
      if (i % 5 === 4) job.setId(`ours-${name}-${i}`)
      await job.save()
      added.push(`${name}-${i}`)
    }
    return added
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const { op, ...args } = JSON.parse(line)
  say({ op, ok: (await commands[op](args)) ?? true })
}
process.exit(0)
