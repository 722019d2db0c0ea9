"""One process of an application on RQ: rq_app.py worker|client PORT [NAME].

A client reads commands from its input, one JSON a line, and writes an answer for each. A worker
says that it is up, and its jobs write {"done": id}."""
import json
import sys
import time


def say(**what):
    print(json.dumps(what), flush=True)


def work(job, seconds=0):
    time.sleep(seconds)
    say(done=job)


def main(role, port, name='client'):
    from redis import Redis
    from rq import Queue, Worker

    connection = Redis('127.0.0.1', int(port))
    queue = Queue('mail', connection=connection)
    if role == 'worker':  # it beats once a second
        worker = Worker([queue], name=name, connection=connection, default_worker_ttl=16, job_monitoring_interval=1)
        say(op='up', ok=True)
        worker.work(logging_level='WARNING')
        return
    for line in sys.stdin:
        command = json.loads(line)
        jobs = ['job-%s-%d' % (command['name'], i) for i in range(command['n'])]
        for job in jobs:
            queue.enqueue('rq_app.work', job, command.get('seconds', 0), job_id=job)
        say(op='add', ok=jobs)


if __name__ == '__main__':
    main(*sys.argv[1:])
