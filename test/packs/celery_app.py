"""One process of an application on Celery: celery_app.py worker|client|asker PORT [NAME].

A client reads commands from its input, one JSON a line, and writes an answer for each. A worker
says that it is up, and its tasks write {"done": id}. An asker asks all workers how they are, and
dies before it reads their answers."""
import json
import os
import signal
import sys
import time

from celery import Celery
from celery.signals import worker_ready

role, port = sys.argv[1:3] if __name__ == '__main__' else ('', '0')
app = Celery('celery_app', broker='redis://127.0.0.1:%s/0' % port, backend='redis://127.0.0.1:%s/0' % port)
app.conf.update(worker_redirect_stdouts=False, worker_hijack_root_logger=False, broker_connection_retry_on_startup=True)


def say(**what):
    print(json.dumps(what), flush=True)


@app.task(name='work')
def work(task, seconds):
    time.sleep(seconds)
    say(done=task)


@worker_ready.connect
def up(**_):
    say(op='up', ok=True)


def dies(*_, **__):
    time.sleep(1)  # the workers answer meanwhile
    os.kill(os.getpid(), signal.SIGKILL)


def client():
    for line in sys.stdin:
        command = json.loads(line)
        if command['op'] == 'ask':
            say(op='ask', ok=sorted(app.control.inspect(timeout=3).ping() or {}))
            continue
        tasks = ['task-%s-%d' % (command['name'], i) for i in range(command['n'])]
        for task in tasks:
            work.delay(task, command.get('seconds', 0))
        say(op='add', ok=tasks)


if role == 'worker':
    app.worker_main(['worker', '-n', sys.argv[3] + '@test', '-c', '2', '--loglevel=ERROR'])
elif role == 'asker':
    from kombu.pidbox import Mailbox
    Mailbox._collect = dies
    app.control.inspect(timeout=2).stats()
elif role == 'client':
    client()
