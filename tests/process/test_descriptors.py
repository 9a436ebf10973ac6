"""Processes of one user come to share file descriptors by meeting at a name."""

import os
import socket
import subprocess
import sys
import threading

import pytest

from tianji.core.errors import TianJiError
from tianji.transports import descriptors as module
from tianji.transports.descriptors import DescriptorService, fetch

pytestmark = pytest.mark.process

GUEST = """
import os, sys
from tianji.transports.descriptors import fetch
memory, *events = fetch(sys.argv[1], 3)
os.pwrite(memory, sys.argv[2].encode(), int(sys.argv[2]))
for event in events:
    os.eventfd_write(event, 1)
"""


@pytest.fixture
def place():
    place = DescriptorService(4)
    yield place
    place.close()


@pytest.fixture
def descriptors():
    memory = os.memfd_create("test")
    events = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(2)]
    yield [memory, *events]
    for descriptor in (memory, *events):
        os.close(descriptor)


def test_processes_that_meet_share_memory_and_events(place, descriptors, child_env):
    guests = [
        subprocess.Popen([sys.executable, "-c", GUEST, place.name, str(i)], env=child_env)
        for i in range(3)
    ]
    place.hand_out(descriptors, 3)
    assert [guest.wait(120) for guest in guests] == [0, 0, 0]
    assert os.pread(descriptors[0], 10, 0) == b"012"
    assert [os.eventfd_read(event) for event in descriptors[1:]] == [3, 3]


def test_more_descriptors_than_fit_one_message_are_handed_over_in_order(place):
    made = [os.memfd_create(f"m{i}") for i in range(300)]
    found = []
    guest = threading.Thread(target=lambda: found.extend(fetch(place.name, 300)))
    guest.start()
    place.hand_out(made, 1)
    guest.join(10)
    numbers = [[os.fstat(descriptor).st_ino for descriptor in of] for of in (made, found)]
    assert numbers[0] == numbers[1]
    for descriptor in (*made, *found):
        os.close(descriptor)


def test_a_guest_of_another_user_gets_nothing_and_takes_nobodys_place(
    place, descriptors, monkeypatch
):
    users = iter([os.getuid() + 1, os.getuid()])
    monkeypatch.setattr(module, "_user", lambda guest: next(users))
    results = []

    def come():
        try:
            results.append(len(fetch(place.name, 3)))
        except TianJiError as error:
            results.append(str(error))

    guests = [threading.Thread(target=come) for _ in range(2)]
    for guest in guests:
        guest.start()
    place.hand_out(descriptors, 1)
    for guest in guests:
        guest.join(10)
    gone = "the first process of this host has gone: its log says why"
    assert sorted(results, key=str) == [3, gone]


def test_the_user_of_a_guest_is_told_by_the_system():
    here, there = socket.socketpair(socket.AF_UNIX)
    with here, there:
        assert module._user(here) == os.getuid()


def test_names_cannot_be_guessed_and_lie_in_no_folder():
    first, second = DescriptorService(1), DescriptorService(1)
    assert first.name != second.name
    assert len(first.name) > 32
    assert not os.path.exists(first.name)
    for place in (first, second):
        place.close()


def test_who_is_not_come_for_in_time_is_not_waited_for(place, descriptors):
    place._socket.settimeout(0.05)
    with pytest.raises(TianJiError, match="1 processes of this host did not come"):
        place.hand_out(descriptors, 1)
