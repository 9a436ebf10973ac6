"""Rank 1 sends, says goodbye and goes; rank 0 looks when all that is over."""

import os
import sys
import time
from pathlib import Path

import numpy as np

from tianji.transports.mpi import World
from tianji.transports.wire import Happening, Note, Word

world, folder = World(), Path(sys.argv[1])
wire = world.wire([1 - world.rank])
if world.rank == 1:
    payload = np.full(1000, 7, np.uint8)
    for number in range(10):
        wire.send(0, Note(Word.MESSAGE, 3, number, 5), payload)
    wire.send(0, Note(Word.CLOSED, 3, 10))
    wire.send(0, Note(Word.LEFT))
    while any(flight.what is not Happening.NOTED for flight in wire._flights):  # sends
        wire.poll()
    (folder / "half").write_text(str(os.getpid()))
    (folder / "half").rename(folder / "gone")
    os._exit(0)

deadline = time.monotonic() + 20
while not (folder / "gone").exists() and time.monotonic() < deadline:
    time.sleep(0.01)
while Path(f"/proc/{(folder / 'gone').read_text()}").exists() and time.monotonic() < deadline:
    time.sleep(0.01)
time.sleep(0.5)  # MPI is told a little later that it has gone
memory, told, lost = np.zeros(1000, np.uint8), [], False
while not lost and time.monotonic() < deadline:
    for event in wire.poll():
        if event.what is Happening.NOTED and event.note.word is Word.MESSAGE:
            wire.receive(1, event.note, memory)
        lost |= event.what is Happening.LOST
        told.append(event.note.word.name if event.what is Happening.NOTED else event.what.name)
print(*told, int(memory.sum()), flush=True)
os._exit(0)
