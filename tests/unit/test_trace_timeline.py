"""The timeline of a trace: its arrows are sound, and a browser reads it."""

import json
import os
from collections import defaultdict

import pytest
from recordings import folder_of_a_run, heading, made, record

from tianji.cli import trace as trace_verb
from tianji.cli.main import parser
from tianji.core.errors import TianJiError
from tianji.core.tracer import What
from tianji.observe.trace.format import Doing
from tianji.observe.trace.timeline import events_of, save
from tianji.observe.trace.trace_reader import read


@pytest.fixture
def run(tmp_path):
    return folder_of_a_run(tmp_path)


def traced(run, *words):
    """What `tianji trace` ends with."""
    options = parser(["trace"]).parse_args(["trace", str(run), *map(str, words)])
    return trace_verb.run(options)


def flows(events):
    found = defaultdict(list)
    for event in events:
        if event["ph"] in "stf":
            found[event["id"]].append(event)
    return found


def names(events):
    return {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["name"] == "thread_name"
    }


def test_every_process_and_role_has_a_name(run):
    events = list(events_of(made(run)))
    processes = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert processes == [f"{n} (pid 7 on here)" for n in ("actor-0.0", "actor-0.1", "learner-0.0")]
    assert sorted(names(events).values()) == ["actor-0.0", "actor-0.1", "buffer-0.0", "learner-0.0"]


def test_events_are_sorted_and_times_are_microseconds_of_the_window(run):
    events = [event for event in events_of(made(run)) if event["ph"] != "M"]
    times = [event["ts"] for event in events]
    assert times == sorted(times) and times[0] == 0.0
    (update,) = [event for event in events if event["name"] == "update"]
    assert (update["ts"], update["dur"]) == (pytest.approx(1.61e6), pytest.approx(1.29e6))
    assert update["args"] == {"version": 0}


def test_idle_slices_are_cut_around_the_work_of_the_same_process(run):
    events = list(events_of(made(run)))
    who = names(events)
    idle = [
        (event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6)
        for event in events
        if event.get("cat") == "idle" and who[event["pid"], event["tid"]] == "learner-0.0"
    ]  # from 0.95 to 1.5 s the buffer receives two trajectories and sends a batch
    want = [(0.1, 0.95), (1.5, 1.6), (3.0, 4.1)]
    assert idle == [pytest.approx(times) for times in want]


def test_arrows_have_an_id_a_beginning_and_an_end(run):
    chains = flows(events_of(made(run)))
    assert len(chains) == 7  # two trajectories, a batch, two versions for two actors
    for chain in chains.values():
        assert len({event["name"] for event in chain}) == 1
        assert [event["ph"] for event in chain] == ["s", *["t"] * (len(chain) - 2), "f"]
        assert all(event["bp"] == "e" for event in chain)
        times = [event["ts"] for event in chain]
        assert times == sorted(times)


def test_arrows_lead_from_trajectory_to_batch_to_update_to_weights_to_actors(run):
    events = list(events_of(made(run)))
    who, slices = names(events), [event for event in events if event["ph"] == "X"]

    def slice_of(event):
        place = (event["pid"], event["tid"])
        found = [
            each
            for each in slices
            if (each["pid"], each["tid"]) == place
            and each["ts"] <= event["ts"] < each["ts"] + each["dur"]
        ]
        assert len(found) == 1, "an arrow must lie within one slice"
        return f"{who[place]} {found[0]['name']}"

    chains = [[slice_of(event) for event in chain] for chain in flows(events).values()]
    batch = ["buffer-0.0 send batch", "learner-0.0 update", "learner-0.0 send weights"]
    assert batch in chains
    for i in (0, 1):
        actor = f"actor-0.{i}"
        assert [f"{actor} send trajectory", "buffer-0.0 receive trajectory", batch[0]] in chains
        assert chains.count([batch[2], f"{actor} receive weights"]) == 2


def test_an_arrow_that_would_point_back_in_time_is_left_out(run):
    sent = (0, Doing.SEND, 5.0, 5.1, 0, 0, What.TRAJECTORY)
    came = (0, Doing.RECEIVE, 4.0, 4.1, 0, 0, What.TRAJECTORY, 0)
    for home, row in (("actor-0.0", sent), ("buffer-0.0", came)):
        record(run, heading(home), row)
    assert not flows(events_of(read(run)))


def test_the_file_is_json_that_a_browser_reads(run):
    trace = made(run)
    for name in ("trace.json", "trace.json.gz"):
        n_events = save(trace, run / name)
    text = (run / "trace.json").read_text()
    data = json.loads(text)
    assert len(data["traceEvents"]) == n_events
    assert data["displayTimeUnit"] == "ms"
    assert (run / "trace.json.gz").stat().st_size < len(text) / 3
    assert not list(run.glob("*.part"))


def test_a_timeline_that_cannot_be_written_is_the_users_mistake(run):
    with pytest.raises(TianJiError, match="cannot be written: No such file or directory"):
        save(made(run), run / "nowhere" / "trace.json")


def test_a_timeline_is_not_written_to_a_pipe_that_nobody_reads(run):
    made(run)
    os.mkfifo(run / "trace.json")
    with pytest.raises(TianJiError, match="this is a pipe, and nobody reads it: name another"):
        traced(run)


def test_a_timeline_takes_the_place_of_a_timeline_alone(run, capsys):
    made(run)
    for name in ("trace.json", "t.json.gz"):
        for _ in range(2):
            assert traced(run, "--out", run / name) == 0
    mine = run / "job.py"
    for content in (b"hyp = {}", b'{"traceEvents": "of something else"}', b"\x1f\x8b no gzip"):
        mine.write_bytes(content)
        with pytest.raises(TianJiError, match="was not written by `tianji trace`"):
            traced(run, "--out", mine)
        assert mine.read_bytes() == content
    with pytest.raises(TianJiError, match="this is a folder"):
        traced(run, "--out", run)
