"""What a notebook's kernel is like: odd streams, an event loop, threads, and no `__main__` guard.

Run with the folder for the runs as its only argument; prints JSON to the real standard output.
"""

import asyncio
import json
import sys
import threading
from pathlib import Path

import tianji

TASK = Path(__file__).parents[1] / "tasks" / "echo_ppo.py"
FOLDER = Path(sys.argv[1])
real = sys.stdout


class Cell:
    """All that a stream must have to be printed to."""

    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text

    def flush(self):
        pass


cell = sys.stdout = Cell()
statuses = {}


def train(name, seconds=0.3, **options):
    options |= dict(run_dir=FOLDER / name, stop_return=1e9, max_seconds=seconds)
    report = tianji.train(TASK, **options)
    statuses[name] = report.status


async def in_a_cell():
    train("in a loop", seconds=2, quiet=False)
    train("once more")
    train("in this process", engine="local")
    thread = threading.Thread(target=train, args=("in a thread",))
    thread.start()
    thread.join()


asyncio.run(in_a_cell())
both = [threading.Thread(target=train, args=(f"at once {i}",)) for i in range(2)]
for thread in both:
    thread.start()
for thread in both:
    thread.join()
print(json.dumps({"statuses": statuses, "shown": cell.text}), file=real)
