"""The words of mpirun are told from those of the run, and become one sentence on failure."""

import os
import threading

import pytest
from commands import eventually

from tianji.machine.mpirun_output import Banners, last_words, reason

FENCE = "-" * 74
LOST = f"""{FENCE}
PRTE has lost communication with a remote daemon.

  HNP daemon   : [prterun-a-7@0,0] on node a
  Remote daemon: [prterun-a-7@0,1] on node node7

therefore will terminate the job.
{FENCE}
"""
UNREACHED = f"""ssh: Could not resolve hostname node9: Name or service not known
{FENCE[:60]}
A daemon failed to report back after being spawned. This could

  Local host:    a
  Remote host:   node9
  Daemon exit status: 255

try again.
{FENCE[:60]}
"""
MISSING = f"""{FENCE}
prterun was unable to find the specified executable file, and therefore did

   Node:       node3
   Executable: /opt/venv/bin/python
{FENCE}
"""
SLOTS = f"{FENCE}\nThere are not enough slots available in the system to satisfy the 5\n{FENCE}\n"


def heard(text, n=1 << 16):
    """What the banners make of a text that comes in pieces of `n` bytes."""
    banners, shown = Banners(), []
    r, w = os.pipe()
    whole = text.encode()
    with os.fdopen(r, "rb") as stream, os.fdopen(w, "wb", buffering=0) as feed:
        feeding = threading.Thread(target=drip, args=(feed, whole, n))
        feeding.start()
        banners.passing(stream, shown.append)
        feeding.join()
    return banners, b"".join(shown).decode()


def drip(feed, whole, n):
    for i in range(0, len(whole), n):
        feed.write(whole[i : i + n])
    feed.close()


def test_what_the_run_says_is_shown_and_what_mpirun_says_is_kept():
    banners, shown = heard(f"note: resumed\n{LOST}\n[a:123] plm: Warning\ntianji: failed\n\nmore\n")
    assert shown == "note: resumed\ntianji: failed\n\nmore\n"
    assert "node7" in banners.text and "plm: Warning" in banners.text


@pytest.mark.parametrize(
    ("text", "words", "users_mistake"),
    [
        (LOST, "host node7 was lost", False),
        (UNREACHED, "host node9 cannot be reached: `ssh node9 true` must work", True),
        (MISSING, "host node3 has no /opt/venv/bin/python: install TianJi there", True),
        (SLOTS, "fewer places than this run has ranks (5)", True),
    ],
)
def test_a_banner_becomes_one_sentence(text, words, users_mistake):
    why = reason(heard(text)[0], 5, begun=False)
    assert words in why.words and why.users_mistake is users_mistake


def test_a_banner_that_nobody_knows_is_shown_by_its_end():
    banners, shown = heard(f"{FENCE}\n" + "".join(f"line {i}\n" for i in range(20)))
    assert reason(banners, 2, begun=False) is None and not shown
    assert last_words(banners).splitlines() == [f"  mpirun: line {i}" for i in range(15, 20)]


def test_no_more_is_remembered_than_can_be_of_use():
    banners, _ = heard(f"{FENCE}\n" + "word\n" * 10_000)
    assert len(banners.kept) == 200


@pytest.mark.parametrize("n", [1, 64])
def test_what_it_says_at_the_end_of_a_job_that_has_started_a_process_is_kept_off(n):
    text = "Learned.\nLAUNCHER JOB OBJECT NOT FOUND[a:7] OPAL ERROR: Data unpack\nLA\n"
    assert heard(text, n)[1] == "Learned.\nLA\n"


@pytest.mark.parametrize("n", [1, 7, 64])
def test_pieces_of_any_size_are_told_apart_alike(n):
    text = f"one\n{LOST}\ntwo\n{UNREACHED}\nthree\n"
    assert heard(text, n)[1] == "one\ntwo\nthree\n"
    assert "node7" in heard(text, n)[0].text


def test_a_panel_that_ends_no_line_is_shown_at_once():
    banners, shown = Banners(), []
    r, w = os.pipe()
    with os.fdopen(r, "rb") as stream:
        reading = threading.Thread(target=banners.passing, args=(stream, shown.append))
        reading.start()
        os.write(w, b"\x1b[2Kpanel")
        eventually(lambda: b"".join(shown) == b"\x1b[2Kpanel", what="the panel")
        os.close(w)
        reading.join()


@pytest.mark.parametrize("text", [LOST, UNREACHED])
def test_a_host_that_was_there_is_lost_whatever_mpirun_says(text):
    why = reason(heard(text)[0], 5, begun=True)
    assert "was lost" in why.words and not why.users_mistake


@pytest.mark.parametrize("n", [1, 1 << 16])
def test_the_zeros_that_mpirun_writes_are_not_shown(n):
    assert heard(f"{LOST}\0\ntianji: no\n\0tianji: this\n", n)[1] == "tianji: no\ntianji: this\n"
