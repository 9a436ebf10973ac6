"""What a report says of run folders: whole ones, half ones, strange ones and several at once."""

import errno
import json
import math
import os
import re
import time
from pathlib import Path

import numpy as np
import pytest
from made_runs import config, evaluation, make, row, summary, write_rows

from tianji.core.errors import TianJiError
from tianji.observe import report
from tianji.observe.report.histogram import rebinned
from tianji.observe.report.page import embedded, gather, policy, save
from tianji.observe.report.report_text import describe
from tianji.observe.report.run_files import MISSING, stamp_of
from tianji.observe.report.run_reader import MOST_POINTS, RunReader


def read(folder, **how):
    """The data of one run."""
    reader = RunReader(folder)
    reader.refresh()
    return reader.document(**how)


def embedded_in(page):
    """The document inside of a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    return json.loads(found.group(1))


def append(path, text):
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def test_a_finished_run_is_reported_from_its_summary(tmp_path):
    run = read(make(tmp_path / "run", 60, seed=3, predicted={"made": {"predicted": 2}}))
    assert (run["status"], run["status_words"], run["seed"]) == ("solved", "Solved", 3)
    assert run["task"] == "CartPole-v1 · DQN"
    assert run["numbers"]["final_time_seconds"] == 60.0
    assert run["numbers"]["env_steps"] == 60_000
    assert run["bottleneck"].startswith("training-bound")
    assert [role["name"] for role in run["roles"]] == [
        *("learner-0.0", "buffer-0.0", "actor-0.0", "actor-0.1")
    ]
    assert run["memory"] == {"channels": 439_040, "store": 2_450_392}
    assert run["checkpoints"] == ["0001-step-30000", "final.safetensors"]
    assert run["predicted"] == [
        {"name": "replay ratio (target)", "predicted": 4.0, "measured": 3.99},
        {"name": "freshness (target)", "predicted": 0.0026, "measured": 0.0085},
        {"name": "made", "predicted": 2.0, "measured": None},
    ]
    assert run["notices"] == []


def test_what_a_run_warned_of_is_repeated(tmp_path):
    run = read(make(tmp_path / "run", 5, warnings=["the disk was full", 7]))
    assert run["notices"] == ["the disk was full"]


def test_a_run_without_a_summary_is_reported_from_its_rows(tmp_path):
    run = read(make(tmp_path / "run", 30, status=None))
    assert run["status"] == "unfinished"
    assert "has not written down how it ended" in run["notices"][0]
    assert run["numbers"]["env_steps"] == 30_000
    assert run["numbers"]["stop_return"] == 475.0
    assert run["numbers"]["consumption_per_second"] == pytest.approx(4_000, rel=0.1)
    assert run["predicted"][0]["predicted"] == 4.0
    assert run["roles"] and run["roles_over"] == "the last second"


FAULTS = {"restarts": 3, "env_restarts": 2, "not_finite": 0, "lost_episodes": 5}
FAULTS |= {"skipped_updates": 7}


def test_how_far_groups_are_apart_is_drawn_where_there_are_several(tmp_path):
    alone, several = make(tmp_path / "alone", 3), make(tmp_path / "several", 0)
    apart = [row(s) | {"fusion/distance": s / 2, "fusion/kl": s / 64} for s in (1, 2, 3)]
    write_rows(several / "metrics.jsonl", apart)
    curves = read(several)["curves"]
    assert curves["fusion_distance"] == [0.5, 1.0, 1.5]
    assert curves["fusion_kl"] == pytest.approx([1 / 64, 2 / 64, 3 / 64], rel=1e-4)
    assert set(read(alone)["curves"]["fusion_kl"]) == {None}  # a chart of nothing is left out


def test_what_was_survived_is_in_the_numbers_with_the_last_processes(tmp_path):
    lost = [
        {"process": f"actor-0.{i}", "how": "was killed by SIGKILL", "words": "", "seconds": 3.5 * i}
        | {"away_seconds": 1.25}
        for i in range(15)
    ]
    run = read(make(tmp_path / "run", 40, faults=lost, **FAULTS))
    assert FAULTS.items() <= run["numbers"].items()
    assert [fault["process"] for fault in run["faults"]] == [f"actor-0.{i}" for i in range(5, 15)]
    assert run["faults"][-1]["seconds"] == 49 and run["faults"][-1]["away_seconds"] == 1.25


def test_faults_of_a_run_without_a_summary_come_from_its_rows(tmp_path):
    folder = tmp_path / "run"
    make(folder, 10, status=None)
    counts = ("env_restarts", "not_finite", "lost_episodes", "skipped")
    names = ("time/restarts", *(f"faults/{name}" for name in counts))
    counted = dict(zip(names, FAULTS.values(), strict=True))
    write_rows(folder / "metrics.jsonl", [row(s) | counted for s in range(1, 11)])
    assert FAULTS.items() <= read(folder)["numbers"].items()


def test_the_first_words_of_a_lost_process_are_shown_though_many_left_none(tmp_path):
    killed = {"process": "actor-0.0", "how": "was killed by SIGKILL", "words": ""}
    failed = {"process": "actor-0.1", "how": "failed with exit status 1"}
    words = "x" * 20_000 + "\nValueError: no more marbles"
    lost = [killed] * 20 + [failed | {"words": words}, failed | {"words": "later"}] + [killed] * 20
    said = read(make(tmp_path / "run", 5, faults=lost))["first_words"]
    assert said.startswith("actor-0.1 failed with exit status 1:\nxx")
    assert said.endswith("\nValueError: no more marbles") and len(said) < 9_000
    assert read(make(tmp_path / "other", 5, faults=[killed]))["first_words"] is None


@pytest.mark.parametrize("faults", [7, [None, 3, {"process": 5, "how": {}, "seconds": "x"}]])
def test_faults_that_are_no_faults_are_shown_as_nothing(tmp_path, faults):
    run = read(make(tmp_path / "run", 10, faults=faults))
    assert all(not any(fault.values()) for fault in run["faults"]) and run["first_words"] is None


def test_a_run_that_failed_before_its_first_row_is_reported(tmp_path):
    run = read(make(tmp_path / "run", 0, status="failed", error="no memory"))
    assert (run["status"], run["error"]) == ("failed", "no memory")
    assert "did not come to its first update" in run["notices"][0]
    assert run["curves"]["time"] == []


def test_how_a_run_stands_is_read_while_it_goes_on(tmp_path):
    folder = make(tmp_path / "run", 30, status=None)
    stands = summary(row(30), status="running")
    (folder / "progress.json").write_text(json.dumps(stands))
    run = read(folder, live=True)
    assert run["status"] == "running"
    assert run["histograms"]["staleness"] and run["bottleneck"]


def test_a_summary_of_before_a_resume_says_nothing_about_the_run_that_goes_on(tmp_path):
    folder = make(tmp_path / "run", 30, status="interrupted")
    append(folder / "metrics.jsonl", json.dumps(row(31)) + "\n")
    assert read(folder)["status"] == "unfinished"
    reader = RunReader(folder, before=stamp_of(folder / "summary.json"))
    assert not reader.ended
    (folder / "summary.json").unlink()
    (folder / "summary.json").write_text(json.dumps(summary(row(31))))
    os.utime(folder / "summary.json", ns=(1, 1))
    assert reader.ended


def test_half_a_line_at_the_end_is_left_for_later(tmp_path):
    folder = make(tmp_path / "run", 5, status=None)
    line = json.dumps(row(6)) + "\n"
    append(folder / "metrics.jsonl", line[:100])
    reader = RunReader(folder)
    reader.refresh()
    assert reader.document()["numbers"]["env_steps"] == 5_000
    assert reader.document()["notices"][1:] == []
    append(folder / "metrics.jsonl", line[100:])
    reader.refresh()
    assert reader.document()["numbers"]["env_steps"] == 6_000


def test_a_row_that_cannot_be_read_is_left_out_and_counted(tmp_path):
    folder = make(tmp_path / "run", 3)
    append(folder / "metrics.jsonl", '{"env_steps": \n[1]\n\xff\n{"env_steps": null}\n\n')
    run = read(folder)
    assert run["notices"] == ["4 lines of metrics.jsonl could not be read."]
    assert len(run["curves"]["time"]) == 3


def test_rows_after_a_resume_replace_those_that_were_trained_again(tmp_path):
    folder = make(tmp_path / "run", 10, status=None)
    again = [row(s) | {"rollout/ep_rew_mean": -1.0} for s in range(6, 9)]
    append(folder / "metrics.jsonl", "".join(json.dumps(each) + "\n" for each in again))
    curves = read(folder)["curves"]
    assert curves["steps"] == [1_000 * s for s in range(1, 9)]
    assert curves["return"][5:] == [-1.0] * 3 and curves["return"][4] > 0
    assert curves["time"] == sorted(curves["time"])


def test_training_time_goes_on_where_a_resumed_run_counts_from_zero(tmp_path):
    folder = make(tmp_path / "run", 10, status=None)
    later = [row(s) | {"time/time_elapsed": s - 10.0} for s in (11, 12, 13)]
    append(folder / "metrics.jsonl", "".join(json.dumps(each) + "\n" for each in later))
    assert read(folder)["curves"]["time"][-4:] == [10.0, 10.0, 11.0, 12.0]


def test_a_file_that_was_written_anew_is_read_anew(tmp_path):
    folder = make(tmp_path / "run", 10, status=None)
    reader = RunReader(folder)
    before = reader.refresh()
    write_rows(folder / "metrics.jsonl", [row(1), row(2)])
    assert reader.refresh() != before
    assert reader.document()["curves"]["steps"] == [1_000, 2_000]


def test_nothing_is_read_twice(tmp_path):
    folder = make(tmp_path / "run", 10, status=None)
    reader = RunReader(folder)
    assert reader.refresh() == reader.refresh()
    append(folder / "metrics.jsonl", json.dumps(row(11)) + "\n")
    reader.refresh()
    assert reader.document()["curves"]["steps"] == [1_000 * s for s in range(1, 12)]


def test_what_is_missing_in_a_row_is_a_gap(tmp_path):
    folder = make(tmp_path / "run", 3, status=None)
    strange = row(4) | {"rollout/ep_rew_mean": "NaN", "balance/ratio": math.nan, "train/new": 1.0}
    del strange["train/loss"]
    append(folder / "metrics.jsonl", json.dumps(strange) + "\n")
    curves = read(folder)["curves"]
    assert (curves["return"][-1], curves["ratio"][-1]) == (None, None)
    assert curves["train"]["loss"][-1] is None
    assert curves["train"]["new"] == [None, None, None, 1]


def test_a_long_curve_is_thinned_and_ends_where_it_ended(tmp_path):
    folder = make(tmp_path / "run", 3 * MOST_POINTS + 7, status=None)
    reader = RunReader(folder)
    reader.refresh()
    curves = reader.document()["curves"]
    assert len(curves["time"]) <= MOST_POINTS + 1
    assert curves["rows_per_point"] == 4
    assert curves["time"][-1] == 3 * MOST_POINTS + 7
    assert curves["time"][0] == pytest.approx(np.mean([1, 2, 3, 4]))
    assert {len(c) for c in curves.values() if isinstance(c, list)} == {len(curves["time"])}


def test_evaluations_lie_where_the_curve_had_as_many_steps(tmp_path):
    rows = [evaluation(5_000, 50.0, wall=99.0), evaluation(20_000, 70.0, of="eval")]
    found = read(make(tmp_path / "run", 20, evaluations=rows))["evaluations"]
    assert [(e["of"], e["time"], e["iqm"]) for e in found] == [
        ("training", 5, 50.0),
        ("eval", 20, 70.0),
    ]
    assert (found[0]["low"], found[0]["high"]) == (41.0, 58.0)


def test_later_evaluations_replace_those_of_before_a_resume(tmp_path):
    rows = [evaluation(s, v) for s, v in [(1_000, 1.0), (3_000, 3.0), (2_000, 20.0)]]
    rows += [evaluation(2_000, 5.0, of="eval"), evaluation(2_000, 6.0, of="eval"), {"iqm": "x"}]
    found = read(make(tmp_path / "run", 4, evaluations=rows))["evaluations"]
    assert [(e["of"], e["iqm"]) for e in found] == [
        *(("training", 1.0), ("eval", 6.0), ("training", 20.0))
    ]


def test_rows_that_lack_their_steps_hide_no_others(tmp_path):
    rows = [evaluation(1_000, 1.0), evaluation(2_000, 2.0), evaluation(0, 3.0)]
    rows += [evaluation(0, 4.0, of="eval"), evaluation(3_000, 5.0), evaluation(500, 6.0, of="eval")]
    found = read(make(tmp_path / "run", 4, evaluations=rows))["evaluations"]
    assert sorted(e["iqm"] for e in found) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def test_of_a_checkpoint_the_evaluation_with_the_most_episodes_counts(tmp_path):
    rows = [
        evaluation(2_000, 1.0, of="eval") | {"updates": updates, "episodes": episodes, "iqm": iqm}
        for updates, episodes, iqm in [(5, 10, 1.0), (5, 100, 2.0), (5, 20, 3.0), (6, 1, 4.0)]
    ]
    found = read(make(tmp_path / "run", 4, evaluations=rows))["evaluations"]
    assert [e["iqm"] for e in found] == [2.0, 4.0]


def test_a_histogram_of_one_number_is_that_number():
    assert rebinned([[0, 7]], {"p50": 0.0, "p95": 0.0}) == {"only": 0.0}
    assert "shares" in rebinned([[1_024, 7]], {})  # a wide bin holds many


def test_a_disk_that_cannot_be_written_is_named_once(tmp_path, monkeypatch):
    def read_only(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    data = gather([make(tmp_path / "run", 4)])
    save(data, tmp_path / "first.html")  # reads the parts of the page while it can
    monkeypatch.setattr(Path, "open", read_only)
    monkeypatch.setattr(Path, "unlink", read_only)
    with pytest.raises(TianJiError, match="Read-only file system: name another with --out FILE"):
        save(data)


def test_a_histogram_of_small_numbers_keeps_a_bar_for_each():
    bars = rebinned([[0, 3], [2, 1]], {"p50": 0.0, "p95": 2.0})
    assert bars == {"width": 1, "shares": [0.75, 0, 0.25], "p50": 0.0, "p95": 2.0}


@pytest.mark.parametrize("top", [39, 64, 1_449, 46_341])
def test_a_histogram_of_large_numbers_gets_few_bars_and_loses_nothing(top):
    from tianji.core.counts import Histogram

    histogram = Histogram()
    histogram.add(np.arange(top + 1))
    bars = rebinned([list(pair) for pair in histogram.rows()], {})
    assert len(bars["shares"]) <= 40
    assert sum(bars["shares"]) == pytest.approx(1.0, abs=1e-3)
    even = 1.0 / (top + 1) * bars["width"]
    assert bars["shares"][: len(bars["shares"]) // 2] == pytest.approx(
        [even] * (len(bars["shares"]) // 2), rel=0.05
    )


@pytest.mark.parametrize("rows", [None, "x", [], [[0, 0]], [["a", 1]], [[1]], [[-1, 4]]])
def test_what_is_no_histogram_is_none(rows):
    assert rebinned(rows, {}) == {}


STRANGE = [
    "",
    "[]",
    "{",
    '{"status": ["x"], "roles": [1], "staleness": 3, "error": 5, "predicted": {"a": 1}}',
    '{"roles": {"a": 1}, "memory_bytes": "x", "histograms": [], "env_steps": 1e400}',
    '{"env_steps": ' + "9" * 400 + ', "versions": {"a": 1}, "replay_ratio": null}',
    "[" * 100_000,
]


@pytest.mark.parametrize("content", STRANGE, ids=range(len(STRANGE)))
@pytest.mark.parametrize("name", ["config.json", "summary.json", "evaluations.jsonl"])
def test_a_file_with_anything_in_it_never_breaks_the_report(tmp_path, name, content):
    folder = make(tmp_path / "run", 3)
    (folder / name).write_text(content, encoding="utf-8")
    page = report.build([folder]).read_text(encoding="utf-8")
    assert embedded_in(page)["runs"][0]["numbers"]["updates"] is not None
    describe(gather([folder]))


def test_a_folder_that_does_not_exist_is_named_with_the_runs_beside_it(tmp_path):
    make(tmp_path / "runs" / "a", 1)
    (tmp_path / "runs" / "empty").mkdir()
    with pytest.raises(TianJiError, match=r"nope does not exist: name one of .*runs/a$"):
        report.build([tmp_path / "runs" / "nope"])
    with pytest.raises(TianJiError, match=r"runs is not the folder of a run: .*runs/a$"):
        report.build([tmp_path / "runs"])
    with pytest.raises(TianJiError, match=r"empty is not the folder of a run: name the folder"):
        report.build([tmp_path / "runs" / "empty"])
    with pytest.raises(TianJiError, match=r"config.json is not the folder of a run"):
        report.build([tmp_path / "runs" / "a" / "config.json"])


def test_no_run_at_all_and_no_possible_name_are_refused():
    with pytest.raises(TianJiError, match="at least one run"):
        report.build([])
    with pytest.raises(TianJiError, match="name the folder of a run"):
        report.build(["\0"])


def test_runs_that_differ_in_their_seed_only_are_one_configuration(tmp_path):
    folders = [make(tmp_path / f"s{seed}", 40 + seed, seed=seed) for seed in (1, 2, 3)]
    other = make(tmp_path / "other", 20, about=config(seed=1, lr=0.1))
    data = gather([*folders, other])
    assert [group["runs"] for group in data["groups"]] == [[0, 1, 2], [3]]
    assert [group["label"] for group in data["groups"]] == [
        *("toy_dqn · hyp.lr=0.001", "toy_dqn · hyp.lr=0.1")
    ]
    assert data["differing"] == ["exp.seed", "hyp.lr"]
    first = data["groups"][0]
    assert first["final_time"] == {"median": 42.0, "low": 41.0, "high": 43.0, "n": 3}
    returns = [run["numbers"]["mean_return_100"] for run in data["runs"][:3]]
    assert min(returns) <= first["return"]["low"] <= first["return"]["iqm"]
    assert first["return"]["iqm"] <= first["return"]["high"] <= max(returns)
    assert data["groups"][1]["return"]["low"] is None  # of one run there is no interval


def test_a_band_holds_every_run_and_a_run_that_has_ended_keeps_its_last_value(tmp_path):
    folders = [make(tmp_path / f"s{seed}", 20 * seed, seed=seed) for seed in (1, 2)]
    data = gather(folders)
    band = data["groups"][0]["curves"]["return"]["time"]
    assert band["x"][0] == 2 and band["x"][-1] == 40
    for low, mean, high in zip(band["low"], band["mean"], band["high"], strict=True):
        assert low <= mean <= high
    ended = data["runs"][0]["curves"]["return"][-1]
    assert ended in (band["low"][-1], band["high"][-1])
    rates = data["groups"][0]["curves"]["production"]["time"]
    assert rates["low"][-1] == rates["high"][-1]  # only one still produced then


def test_a_run_that_failed_leaves_the_band_when_it_ends(tmp_path):
    folders = [make(tmp_path / "a", 20, status="failed"), make(tmp_path / "b", 40, seed=1)]
    band = gather(folders)["groups"][0]["curves"]["return"]["time"]
    assert band["low"][-1] == band["high"][-1]


def test_engines_are_told_apart_and_a_run_named_twice_counts_once(tmp_path):
    one = make(tmp_path / "one", 5, about=config(engine="local"))
    two = make(tmp_path / "two", 5)
    data = gather([one, two, one, tmp_path / "two" / ".." / "one"])
    assert [group["label"] for group in data["groups"]] == ["toy_dqn · local", "toy_dqn · process"]


def test_the_text_has_a_line_for_each_run_and_configuration(tmp_path):
    folders = [make(tmp_path / f"s{seed}", 40, seed=seed) for seed in (1, 2)]
    bad = make(tmp_path / "bad\x1b[2J", 5, status="failed", error="Traceback\nValueError: no")
    said = describe(gather([*folders, bad]))
    assert "\x1b" not in said
    assert [line.split()[:3] for line in said.splitlines()[1:3]] == [
        ["s1", "1", "solved"],
        ["s2", "2", "solved"],
    ]
    assert "toy_dqn" in said and "ValueError: no" in said


def test_the_terminal_gets_no_line_that_is_wider_than_itself(tmp_path):
    long = "a_rather_long_name_of_a_configuration"
    folders = [
        make(tmp_path / f"{long}-{i}", 5, seed=i, about=config(long, seed=i, lr=0.1 * i))
        for i in range(2)
    ]
    said = {"status": "failed", "error": "ValueError: " + "so it went " * 20}
    folders.append(make(tmp_path / "bad", 5, **said))
    data = gather(folders)
    lines = describe(data, 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert re.search(rf"^{long}-1 +1 +solved +5\.0 s +[\d.]+$", "\n".join(lines), re.M)
    assert any(line.startswith("left out: ") and "staleness" in line for line in lines)
    in_a_file = describe(data).splitlines()
    assert any(line.endswith("staleness") for line in in_a_file)
    assert not any(line.startswith("left out: ") for line in in_a_file)


HOSTILE = "</script><img src=x onerror=alert(1)><!-- \u2028 &amp; '\""


def test_nothing_from_a_run_can_leave_the_data(tmp_path):
    about = config(name=HOSTILE, seed=1, note=HOSTILE)
    folder = make(tmp_path / "run<b>", 3, about=about, status="failed", error=HOSTILE)
    page = report.build([folder]).read_text(encoding="utf-8")
    assert "<img" not in page and "<b>" not in page.replace("`<b>`", "")
    assert page.count("</script>") == 2 and page.count("<script") == 2
    run = embedded_in(page)["runs"][0]
    assert run["config"]["name"] == run["error"] == run["config"]["hyp.note"] == HOSTILE


def test_warnings_names_of_metrics_and_of_roles_cannot_leave_the_data_either(tmp_path):
    folder = make(tmp_path / "run", 3, about=config(), warnings=[HOSTILE])
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    strange = {f"train/{HOSTILE}": 1.0, f"roles/{HOSTILE}/busy": 0.5}
    text = "".join(json.dumps(row | strange) + "\n" for row in rows)
    (folder / "metrics.jsonl").write_text(text)
    page = report.build([folder]).read_text(encoding="utf-8")
    assert "<img" not in page and page.count("</script>") == 2 and page.count("<script") == 2
    assert HOSTILE in json.dumps(embedded_in(page), ensure_ascii=False).replace('\\"', '"')


def test_a_page_needs_nothing_from_anywhere(tmp_path):
    page = report.build([make(tmp_path / "run", 3)]).read_text(encoding="utf-8")
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!data:,)""", page)
    assert not re.findall(r"url\(|@import", page)
    assert page.count("://") == page.count("http://www.w3.org/2000/svg")  # a name, no address


def test_the_policy_admits_this_script_and_no_other(tmp_path):
    said = policy(live=False)
    assert "default-src 'none'" in said and "connect-src 'none'" in said
    assert "unsafe" not in said and said.count("sha256-") == 2
    assert "connect-src 'self'" in policy(live=True)
    assert said in report.build([make(tmp_path / "run", 1)]).read_text(encoding="utf-8")


def test_embedded_data_is_plain_and_comes_back_the_same():
    data = {"a": [HOSTILE, 1.5, None]}
    assert not set("<>&\u2028") & set(embedded(data))
    assert json.loads(embedded(data)) == data


def test_a_report_is_replaced_and_no_other_file_is(tmp_path, monkeypatch):
    folder = make(tmp_path / "run", 3)
    path = report.build([folder])
    assert path == folder / "report.html"
    assert report.build([folder]) == path
    path.write_text("my notes")
    with pytest.raises(TianJiError, match="exists and is not a report: name another file"):
        report.build([folder])
    assert path.read_text() == "my notes"
    monkeypatch.chdir(tmp_path)
    other = make(tmp_path / "other", 3)
    assert report.build([folder, other]).resolve() == tmp_path / "report.html"
    assert not list(tmp_path.rglob("*.part"))


def test_where_a_report_cannot_be_written_the_error_says_what_to_do(tmp_path):
    folder = make(tmp_path / "run", 3)
    for out in (tmp_path, tmp_path / "missing" / "report.html"):
        with pytest.raises(TianJiError, match="--out"):
            report.build([folder], out)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TianJiError, match="not a report"):
        report.build([folder], tmp_path / "pipe")


def test_the_report_of_an_hour_is_small_and_soon_there(tmp_path):
    folder = make(tmp_path / "hour", 3_600, actors=16)
    began = time.process_time()
    path = report.build([folder])
    assert time.process_time() - began < 5.0
    assert path.stat().st_size < 3_000_000


def test_importing_the_package_loads_no_numpy(child_env):
    import subprocess
    import sys

    names = "tianji.observe.report, tianji.observe.dashboard"
    code = f"import sys, {names}; assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], env=child_env, check=True)


def test_a_file_that_is_missing_has_a_stamp_of_its_own(tmp_path):
    assert stamp_of(tmp_path / "no") == MISSING
