# One process of an application on Sidekiq. Required by the program sidekiq it is a worker, which says
# that it is up, and whose jobs write {"done": id}. Run by ruby it is a client, which reads commands
# from its input, one JSON a line, and writes an answer for each.
require 'json'
require 'sidekiq'

$stdout.sync = true
redis = { url: "redis://127.0.0.1:#{ENV.fetch('REDIS_PORT')}/0" }
Sidekiq.configure_client { |config| config.redis = redis }
Sidekiq.configure_server do |config|
  config.redis = redis
  config.on(:startup) { puts JSON.generate(op: 'up', ok: true) }
end

class Work
  include Sidekiq::Worker

  def perform(job, seconds)
    sleep seconds
    puts JSON.generate(done: job)
  end
end

if $PROGRAM_NAME == __FILE__
  $stdin.each_line do |line|
    command = JSON.parse(line)
    jobs = Array.new(command['n']) { |i| "job-#{command['name']}-#{i}" }
    jobs.each { |job| Work.perform_async(job, command.fetch('seconds', 0)) }
    puts JSON.generate(op: 'add', ok: jobs)
  end
end
