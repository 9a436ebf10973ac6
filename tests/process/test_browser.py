"""The report and the live page, opened in a real browser where one is installed."""

import json
import os

import pytest
from browser import Browser
from made_runs import config, evaluation, make, row, summary, write_rows

from tianji.observe import report
from tianji.observe.dashboard import Dashboard

pytestmark = pytest.mark.process

HOSTILE = "</script><img src=x onerror=document.title=1>"
CARDS = ["return", "limits", "production", "consumption", "ratio", "staleness-time", "staleness"]
CARDS += ["age", "busy", "predicted", "train-loss", "versions", "memory", "checkpoints", "config"]
AGES = ["staleness/mean", "staleness/p50", "staleness/p95", "staleness/max"]
EVALUATIONS = [evaluation(1_000 * s, 40.0 + s) for s in (10, 20, 30)]
EVALUATIONS.append(evaluation(40_000, 90.0, of="eval"))


@pytest.fixture(scope="module")
def opened():
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture
def browser(opened):
    opened.complaints.clear()
    opened.fetched.clear()
    opened.look(1280)
    yield opened
    assert opened.run("document.documentElement.dataset.errors || ''") == ""
    assert opened.complaints == []
    opened.call("Page.navigate", url="about:blank")  # a live page would go on asking


def shown(browser, ids):
    """Those of the elements that take up room on the page."""
    script = "(id) => (document.getElementById(id)?.getBoundingClientRect().height || 0) > 20"
    return browser.run(f"{json.dumps(ids)}.filter({script})")


def words(browser, selector="body"):
    return browser.run(f"document.querySelector({json.dumps(selector)}).innerText")


def numbers(browser, card):
    """The labels of a chart that are bare numbers, in the order they were drawn."""
    texts = f"[...document.querySelectorAll('{card} svg text')].map((text) => text.textContent)"
    return [text for text in browser.run(texts) if text.replace(".", "").isdigit()]


def won(folder, ratio):
    """A run in which games are won more and more often, and what was evaluated meanwhile."""
    played = evaluation(20_000, 60.0) | {"win_ratio": 0.7, "win_low": 0.4, "win_high": 0.9}
    make(folder, 40, evaluations=[played], win_ratio_100=ratio, stop_win_ratio=0.9)
    rows = [row(s) | {"rollout/win_ratio": ratio * s / 40} for s in range(1, 41)]
    write_rows(folder / "metrics.jsonl", rows)
    return folder


def test_how_far_groups_are_apart_has_charts_where_there_are_several(browser, tmp_path):
    charts, several = ["fusion-distance", "fusion-kl"], make(tmp_path / "several", 0)
    browser.open(report.build([make(tmp_path / "one", 20)]).as_uri())
    assert shown(browser, charts) == []
    apart = [row(s) | {"fusion/distance": s / 2, "fusion/kl": s / 64} for s in range(1, 21)]
    write_rows(several / "metrics.jsonl", apart)
    browser.open(report.build([several]).as_uri())
    assert shown(browser, charts) == charts


def test_faults_have_a_tile_and_a_card_where_there_were_any(browser, tmp_path):
    counts = dict(restarts=2, env_restarts=1, not_finite=0, lost_episodes=5, skipped_updates=4)
    lost = [dict(process="actor-0.1", how=f"was {HOSTILE}", seconds=7.5, away_seconds=1.25)]
    lost[0]["words"] = "Traceback\n  in step"
    browser.open(report.build([make(tmp_path / "one", 40, faults=lost, **counts)]).as_uri())
    assert shown(browser, ["faults"]) == ["faults"]
    assert "Faults survived\n12\nprocesses replaced: 2" in words(browser, "#tiles")
    card = words(browser, "#faults")
    assert words(browser, "#faults pre").endswith(f"{HOSTILE}:\nTraceback\n  in step")
    for part in (
        "environments made anew",
        "episodes lost",
        "updates skipped",
        "actor-0.1",
        HOSTILE,
        "7.5 s",
    ):
        assert part in card
    assert "NaN" not in card
    browser.open(report.build([make(tmp_path / "two", 40)]).as_uri())
    assert shown(browser, ["faults"]) == [] and "Faults" not in words(browser, "#tiles")


def test_a_warning_with_a_traceback_keeps_its_lines(browser, tmp_path):
    told = "actor-0.1 was lost:\nTraceback\n  in step"
    browser.open(report.build([make(tmp_path / "one", 40, warnings=[told])]).as_uri())
    assert words(browser, ".banner pre") == "Traceback\n  in step"


def test_won_games_have_a_tile_and_a_chart_where_games_can_be_won(browser, tmp_path):
    browser.open(report.build([won(tmp_path / "one", 0.83)]).as_uri())
    assert shown(browser, ["won"]) == ["won"]
    assert "83 %" in words(browser, "#tiles")
    assert "target 90 %" in words(browser, "#won")
    browser.open(report.build([make(tmp_path / "none", 40)]).as_uri())
    assert shown(browser, ["won"]) == []
    both = [won(tmp_path / "two", 0.5), make(tmp_path / "other", 40, about=config(lr=0.5))]
    browser.open(report.build(both, tmp_path / "both.html").as_uri())
    assert shown(browser, ["won"]) == ["won"]
    assert "50 %" in words(browser, "#comparison")


def test_samples_that_are_all_as_old_get_a_sentence(browser, tmp_path):
    folder = make(tmp_path / "run", 40, histograms={"staleness_updates": [[0, 500]]})
    browser.open(report.build([folder]).as_uri())
    assert "All samples: 0 updates old." in words(browser, "#staleness-only")
    assert browser.run("document.getElementById('staleness')") is None


def test_updates_are_counted_in_whole_numbers(browser, tmp_path):
    folder = make(tmp_path / "run", 40, histograms={"staleness_updates": [[0, 500], [1, 20]]})
    browser.open(report.build([folder]).as_uri())
    assert numbers(browser, "#staleness") == ["0", "1", "2"]


def test_staleness_over_time_is_counted_in_whole_numbers_too(browser, tmp_path):
    folder = make(tmp_path / "run", 0)
    rows = [row(second) | dict.fromkeys(AGES, 0.0) for second in (1, 2, 3)]
    write_rows(folder / "metrics.jsonl", rows)
    browser.open(report.build([folder]).as_uri())
    assert numbers(browser, "#staleness-time")[:2] == ["0", "1"]


def test_a_report_shows_everything_and_asks_nobody(browser, tmp_path):
    folder = make(tmp_path / "run", 40, evaluations=EVALUATIONS)
    browser.open(report.build([folder]).as_uri())
    assert shown(browser, CARDS) == CARDS
    assert "Solved in 40.0 s: mean return" in words(browser)
    assert "Training-bound: the actors wait 55 %" in words(browser)
    assert browser.run("document.querySelectorAll('#return svg .dot').length") == len(EVALUATIONS)
    assert browser.run("document.querySelectorAll('#return .line').length") == 1
    assert browser.run("document.querySelectorAll('#staleness .bar').length") > 10
    assert browser.run("document.querySelectorAll('#roles .track').length") == 4
    assert [url for url in browser.fetched if not url.startswith(("file:", "data:"))] == []
    browser.screenshot(tmp_path / "report.png")
    assert (tmp_path / "report.png").stat().st_size > 20_000


def test_the_return_can_be_seen_over_steps_and_read_off(browser, tmp_path):
    browser.open(report.build([make(tmp_path / "run", 40)]).as_uri())
    assert "training time" in browser.run("document.querySelector('#return svg').textContent")
    browser.run("document.querySelector('#axis [data-axis=steps]').click()")
    assert "environment steps" in browser.run("document.querySelector('#return svg').textContent")
    box = browser.run(
        "(({x, y, width, height}) => [x + width / 2, y + height / 2])"
        "(document.querySelector('#return .plot').getBoundingClientRect())"
    )
    browser.point(*box)
    browser.until("!document.querySelector('#return .readout').hidden")
    said = words(browser, "#return .readout")
    assert "steps" in said and "training episodes" in said


def test_several_runs_are_compared_and_one_can_be_chosen(browser, tmp_path):
    folders = [make(tmp_path / f"s{seed}", 30 + seed, seed=seed) for seed in (1, 2)]
    folders.append(make(tmp_path / "other", 20, about=config(seed=1, lr=0.1)))
    broken = {"status": "failed", "error": "ValueError: no"}
    folders.append(make(tmp_path / "broken", 5, seed=3, **broken))
    browser.open(report.build(folders, tmp_path / "all.html").as_uri())
    assert shown(browser, ["comparison", "runs", "return"]) == ["comparison", "runs", "return"]
    assert browser.run("document.querySelectorAll('#comparison tbody tr').length") == 2
    assert browser.run("document.querySelectorAll('#runs tbody tr').length") == 4
    assert browser.run("document.querySelectorAll('#return .band').length") == 1
    assert "ValueError: no" in words(browser, ".banner")
    browser.run("document.querySelector('#config details').open = true")
    assert browser.run("document.querySelectorAll('#config tr.other').length") == 2
    before = browser.run("document.querySelector('#production .line').getAttribute('d')")
    browser.run("(s => { s.value = 2; s.dispatchEvent(new Event('change')) })(run)")
    assert browser.run("document.querySelector('#production .line').getAttribute('d')") != before


@pytest.mark.parametrize("status", ["failed", "unfinished", "interrupted"])
def test_a_run_that_did_not_end_as_it_should_says_so_at_the_top(browser, tmp_path, status):
    given = None if status == "unfinished" else status
    folder = make(tmp_path / "run", 0 if status == "failed" else 9, given)
    browser.open(report.build([folder]).as_uri())
    assert status in words(browser, ".banner")


def test_words_from_a_run_stay_words(browser, tmp_path):
    about = config(name=HOSTILE, seed=1, note=HOSTILE)
    folder = make(tmp_path / "run", 5, "failed", about=about, error=HOSTILE)
    browser.open(report.build([folder, make(tmp_path / "b", 5)], tmp_path / "a.html").as_uri())
    assert browser.run("document.images.length") == 0
    assert browser.run("document.title") != "1"
    assert HOSTILE in words(browser)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 420, 800, 1280, 1920])
def test_a_page_fits_its_window_in_light_and_dark(browser, tmp_path, width, scheme):
    folders = [make(tmp_path / f"s{seed}", 30, seed=seed) for seed in (1, 2)]
    browser.look(width, scheme=scheme)
    for page in (report.build(folders, tmp_path / "two.html"), report.build(folders[:1])):
        browser.open(page.as_uri())
        assert browser.run("document.documentElement.scrollWidth") <= width
        paper = browser.run("getComputedStyle(document.body).backgroundColor")
        assert (int(paper[4:].split(",")[0]) < 128) == (scheme == "dark")


def test_the_live_page_follows_a_run_to_its_end_without_being_built_anew(browser, tmp_path):
    folder = make(tmp_path / "run", 10, status=None)
    dashboard = Dashboard(folder, 0)
    try:
        browser.open(dashboard.start())
        browser.until("document.documentElement.dataset.live === 'yes'")
        assert "live" in words(browser, "#live")
        assert shown(browser, ["return", "production", "busy"]) == ["return", "production", "busy"]
        browser.run(
            "document.getElementById('return').mark = document.querySelector('h1').mark = 1"
        )
        with (folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row(11)) + "\n")
        browser.until("document.body.innerText.includes('11,000')")
        assert browser.run("document.getElementById('return').mark") == 1
        part = folder / "summary.part"
        part.write_text(json.dumps(summary(row(11))))
        os.replace(part, folder / "summary.json")
        browser.until("document.documentElement.dataset.live === 'ended'")
        assert "the run has ended" in words(browser, "#live")
        assert "Solved in 11.0 s" in words(browser)
    finally:
        dashboard.close()


def test_the_live_page_says_when_the_server_has_gone(opened, tmp_path):
    dashboard = Dashboard(make(tmp_path / "run", 10, status=None), 0)
    opened.open(dashboard.start())
    dashboard.close()
    opened.until("document.documentElement.dataset.live === 'gone'")
    assert "no answer" in words(opened, "#live")
    assert opened.run("document.documentElement.dataset.errors || ''") == ""
    assert shown(opened, ["return"]) == ["return"]  # the last picture stays
