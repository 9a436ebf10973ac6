"""Who gets which cores, and whether the memory suffices."""

import json
import os
import re
import subprocess
import time

import pytest
from commands import TASKS

from tianji import config as configs
from tianji.core.env import EnvSpec
from tianji.core.errors import TianJiError
from tianji.core.schema import Field
from tianji.core.store import trajectory_schema
from tianji.machine import resources
from tianji.machine.resources import (
    MOST_THREADS,
    THREAD_VARIABLES,
    Share,
    _free_in,
    _groups,
    _quota_in,
    assign,
    available_cores,
    devices_of,
    free_bytes,
    free_gpu_bytes,
    gpu_of,
    n_usable,
    process_started_at,
    quota,
    refuse_without_gpu,
    refuse_without_memory,
    usable_here,
)
from tianji.stores.replay import Replay

EIGHT = tuple(range(8))


@pytest.fixture
def config(root):
    def load(learner=None, buffer=None, actor=None, num=2):
        given = {
            "learner_cfg.cores": learner,
            "buffer_cfg.cores": buffer,
            "actor_cfg.cores": actor,
            "actor_cfg.num": num,
        }
        overrides = [f"parallel_parameters.{k}={v}" for k, v in given.items() if v is not None]
        return configs.load(root / "configs/cartpole_dqn.py", overrides)

    return load


def cores(shares):
    return {name: share.cores for name, share in shares.items()}


def test_cores_that_were_asked_for_belong_to_one_role_alone(config):
    shares = assign(config(learner=2, buffer=1, actor=2), EIGHT, alternates=False)
    assert cores(shares) == {
        "learner-0.0": (0, 1),
        "buffer-0.0": (2,),
        "actor-0.0": (3, 4),
        "actor-0.1": (5, 6),
    }
    assert [share.threads for share in shares.values()] == [2, 1, 2, 2]


def test_who_asks_for_nothing_shares_what_is_left(config):
    shares = assign(config(learner=2), EIGHT, alternates=False)
    assert cores(shares)["learner-0.0"] == (0, 1)
    assert cores(shares)["actor-0.0"] == cores(shares)["actor-0.1"] == EIGHT[2:]
    assert shares["actor-0.0"].threads == 1


def test_a_learner_that_asks_for_nothing_leaves_a_core_to_each_actor(config):
    assert assign(config(), EIGHT[:5], alternates=False)["learner-0.0"].threads == 3
    assert assign(config(num=20), EIGHT, alternates=False)["learner-0.0"].threads == 1


def test_a_learner_that_takes_turns_with_its_actors_uses_their_cores_too(config):
    assert assign(config(), EIGHT[:3], alternates=True)["learner-0.0"].threads == 3
    assert assign(config(), EIGHT, alternates=True)["learner-0.0"].threads == MOST_THREADS


def test_where_nothing_is_left_all_cores_are_shared(config):
    shares = assign(config(learner=2), (4, 5), alternates=False)
    assert cores(shares)["actor-0.0"] == (4, 5)


def test_actors_may_have_the_learners_cores_where_they_take_turns(config):
    wanted = config(learner=2, actor=1, num=2)
    assert cores(assign(wanted, (4, 5), alternates=True)) == {
        "learner-0.0": (4, 5),
        "actor-0.0": (4,),
        "actor-0.1": (5,),
    }
    with pytest.raises(TianJiError, match=r"want 2 cores, actors 2, but .* offers 2"):
        assign(wanted, (4, 5), alternates=False)


def test_the_roles_of_a_group_are_side_by_side(root):
    wanted = [
        "global_cfg.group_num=2",
        "learner_cfg.cores=1",
        "actor_cfg.num=2",
        "actor_cfg.cores=1",
    ]
    two = configs.load(root / "configs/cartpole_dqn.py", wanted)
    apart = {
        "learner-0.0": (0,),
        "actor-0.0": (1,),
        "actor-0.1": (2,),
        "learner-1.0": (3,),
        "actor-1.0": (4,),
        "actor-1.1": (5,),
    }
    folded = {
        "learner-0.0": (0,),
        "actor-0.0": (0,),
        "actor-0.1": (1,),
        "learner-1.0": (2,),
        "actor-1.0": (2,),
        "actor-1.1": (3,),
    }
    for n, alternates, found in ((6, False, apart), (6, True, apart), (4, True, folded)):
        given = cores(assign(two, EIGHT[:n], alternates))
        assert {home: mine for home, mine in given.items() if home != "reducer-0.0"} == found


def test_every_role_is_given_a_share(config):
    for options in ({}, {"learner": 1}, {"actor": 1}, {"buffer": 1}):
        shares = assign(config(**options), EIGHT, alternates=False)
        assert {"learner-0.0", "actor-0.0", "actor-0.1"} <= set(shares)
        assert all(share.cores and share.threads >= 1 for share in shares.values())


def test_an_impossible_split_says_what_to_lower(config):
    with pytest.raises(TianJiError, match="lower `cores` or `num`, or leave `cores` out"):
        assign(config(learner=9), EIGHT, alternates=True)


def test_a_share_tells_every_library_its_threads():
    environment = Share((2, 3), 2).environment()
    assert {environment[name] for name in THREAD_VARIABLES} == {"2"}
    assert environment["TIANJI_CORES"] == "2,3"


def test_idle_threads_soon_sleep_unless_the_user_says_otherwise(monkeypatch):
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    assert Share((0,), 1).environment()["GOMP_SPINCOUNT"] == "1000"
    monkeypatch.setenv("GOMP_SPINCOUNT", "300000")
    assert Share((0,), 1).environment()["GOMP_SPINCOUNT"] == "300000"


def test_the_tightest_control_group_around_the_process_counts(tmp_path):
    inner = tmp_path / "job" / "step"
    inner.mkdir(parents=True)
    own = tmp_path / "cgroup"
    own.write_text("0::/job/step\n")
    assert _groups(tmp_path, own) == [inner, tmp_path / "job", tmp_path]
    (tmp_path / "job" / "memory.max").write_text("1000\n")
    (tmp_path / "job" / "memory.current").write_text("400\n")
    (inner / "memory.max").write_text("max\n")
    (inner / "memory.current").write_text("300\n")
    assert [_free_in(group) for group in _groups(tmp_path, own)] == [None, 600, None]


def test_available_cores_are_those_of_this_process():
    assert set(available_cores()) == os.sched_getaffinity(0)


@pytest.mark.parametrize(
    ("text", "cores"),
    [("max 100000\n", None), ("50000 100000", 0.5), ("400000 100000", 4.0), ("strange", None)],
)
def test_a_cpu_limit_is_read_in_cores(text, cores, tmp_path):
    assert _quota_in(tmp_path) is None
    (tmp_path / "cpu.max").write_text(text)
    assert _quota_in(tmp_path) == cores


def test_the_tightest_cpu_limit_of_all_groups_counts(tmp_path, monkeypatch):
    inner = tmp_path / "pod" / "box"
    inner.mkdir(parents=True)
    monkeypatch.setattr(resources, "_groups", lambda: [inner, tmp_path / "pod", tmp_path])
    assert quota() is None
    (inner / "cpu.max").write_text("max 100000")
    (tmp_path / "pod" / "cpu.max").write_text("150000 100000")
    assert quota() == 1.5


@pytest.mark.parametrize(("limit", "usable"), [(None, 8), (2.0, 2), (2.9, 2), (0.5, 1), (64.0, 8)])
def test_a_container_can_keep_as_many_cores_busy_as_its_time_allows(limit, usable):
    assert n_usable(EIGHT, limit) == usable


def test_a_run_counts_on_the_cores_that_its_control_group_pays_for(monkeypatch):
    monkeypatch.setattr(resources, "available_cores", lambda: tuple(range(64)))
    monkeypatch.setattr(resources, "quota", lambda: 2.0)
    assert usable_here() == 2


def test_a_learner_that_asks_for_nothing_has_no_more_threads_than_its_time_allows(config):
    shares = assign(config(num=1), EIGHT, alternates=True, usable=2)
    assert shares["learner-0.0"] == Share(EIGHT, 2)


def test_a_learner_that_asks_for_nothing_has_what_actors_with_cores_of_their_own_leave(config):
    sixteen = tuple(range(16))
    shares = assign(config(actor=1, num=8), sixteen, alternates=False)
    assert shares["learner-0.0"] == Share(sixteen[8:], MOST_THREADS)
    assert assign(config(actor=1, num=6), EIGHT, alternates=False)["learner-0.0"].threads == 2
    assert assign(config(actor=1, num=8), EIGHT, alternates=False)["learner-0.0"] == Share(EIGHT, 1)


def test_who_acts_for_actors_with_cores_of_their_own_has_as_many(root):
    words = ["actor_cfg.inference=True", "actor_cfg.cores=1", "learner_cfg.cores=2"]
    given = configs.load(root / "configs/cartpole_dqn.py", [*words, "actor_cfg.num=2"])
    shares = assign(given, EIGHT, alternates=False)
    alone = [shares[home].cores for home in ("learner-0.0", "inference-0.0", "actor-0.0")]
    assert alone == [(0, 1), (2,), (3,)]


@pytest.mark.parametrize(("usable", "threads"), [(8, 4), (7, 3), (6, 2), (5, 1), (4, 1)])
def test_the_time_of_actors_with_cores_of_their_own_is_not_the_learners_too(
    config, usable, threads
):
    own = config(actor=2, num=2)
    assert assign(own, EIGHT, False, usable=usable)["learner-0.0"].threads == threads
    in_turns = assign(own, EIGHT, True, usable=usable)["learner-0.0"].threads
    assert in_turns == min(usable, MOST_THREADS)


@pytest.fixture
def torch_says(monkeypatch):
    """Pretends that there are GPUs, of which torch can use those that are named."""

    def pretend(*names):
        answer = subprocess.CompletedProcess([], 0, json.dumps({"gpus": names}))
        monkeypatch.setattr(resources.subprocess, "run", lambda *_, **__: answer)
        monkeypatch.setattr(resources, "GPU_FILES", ("null",))
        resources._gpu_for_torch.cache_clear()

    yield pretend
    resources._gpu_for_torch.cache_clear()


@pytest.mark.parametrize("device", ["cuda", "auto"])
def test_a_learners_gpu_is_known_by_its_model(device, torch_says):
    torch_says("Some GPU, 80 GiB", "Another, 8 GiB")
    assert gpu_of(device) == "Some GPU, 80 GiB"
    assert gpu_of("cpu") is None


@pytest.mark.parametrize(
    ("overrides", "acting"),
    [
        ((), "cpu"),  # numpy
        (("model.type='CNN'",), "auto"),
        (("model.type='my:Own'",), "auto"),
        (("actor_cfg.device='cuda'",), "cuda"),
        (("actor_cfg.device='cpu'", "model.type='CNN'"), "cpu"),
    ],
)
def test_actors_that_leave_it_open_may_need_a_gpu_where_they_need_torch(overrides, acting):
    config = configs.load(TASKS / "echo_dqn.py", overrides)
    found = devices_of(config)
    assert found == {"learner_cfg": "cpu", "actor_cfg": acting, "buffer_cfg": "cpu"}


@pytest.mark.parametrize("section", ["learner_cfg", "actor_cfg"])
def test_a_gpu_that_any_section_asks_for_and_nobody_has_is_refused(section, torch_says):
    config = configs.load(TASKS / "echo_dqn.py", [f"{section}.device='cuda'"])
    torch_says()
    with pytest.raises(TianJiError, match=rf"{section}\.device='cuda': torch sees no GPU"):
        refuse_without_gpu(config)
    torch_says("Some GPU, 80 GiB")
    refuse_without_gpu(config)


def test_what_a_gpu_has_left_is_asked_of_torch(monkeypatch):
    asked = []

    def run(command, **_):
        asked.append(command[-1])
        return subprocess.CompletedProcess([], 0, json.dumps({"free_bytes": 7}))

    monkeypatch.setattr(resources.subprocess, "run", run)
    assert (free_gpu_bytes(), asked) == (7, ["free"])


def test_auto_is_the_cpu_where_torch_can_use_no_gpu(torch_says):
    torch_says()
    assert gpu_of("auto") is None


def test_without_a_gpu_nobody_is_asked(monkeypatch):
    monkeypatch.setattr(resources, "GPU_FILES", ("no such device",))
    monkeypatch.setattr(resources.subprocess, "run", lambda *_, **__: pytest.fail("asked"))
    assert gpu_of("auto") is None


def test_memory_that_suffices_is_no_news():
    refuse_without_memory({"channels": 2**20, "store": 2**20}, 2**21)
    refuse_without_memory({"channels": 2**60}, None)  # nobody knows how much is free


def test_a_lack_of_memory_names_the_parts_and_what_to_lower():
    with pytest.raises(TianJiError, match=r"needs 3.00 GiB \(channels 1.00 GiB, store 2.00 GiB\)"):
        refuse_without_memory({"channels": 2**30, "store": 2**31}, 2**30)


@pytest.mark.parametrize("free", [3 << 30, 5 << 30, (6 << 30) + 12_345_678])
def test_a_store_that_is_too_large_is_told_the_size_that_fits(free):
    obs = Field("obs", "uint8", (84, 84))
    spec = EnvSpec((obs,), Field("action", "int64"), (6,), 16, stack=4)
    schema = trajectory_schema(spec, (), 16)

    def needed(room):
        return {"channels": 1 << 28, "store": Replay(32, room, 0).n_bytes(schema, 8, 0)}

    with pytest.raises(TianJiError, match=r"hyp\.buffer_size=") as refused:
        refuse_without_memory(needed(1_000_000), free, 1_000_000)
    fits = int(re.search(r"buffer_size=(\d+)", str(refused.value))[1])
    refuse_without_memory(needed(fits), free, fits)
    with pytest.raises(TianJiError):
        refuse_without_memory(needed(int(fits * 1.2)), free, int(fits * 1.2))


def test_where_not_one_sample_would_fit_no_size_is_named():
    with pytest.raises(TianJiError) as refused:
        refuse_without_memory({"channels": 2**30, "store": 2**31}, 2**29, 1000)
    assert "buffer_size=" not in str(refused.value)


def test_this_machine_has_some_memory_free():
    assert free_bytes() > 0


def test_a_process_began_before_now():
    assert time.monotonic() - 3600 < process_started_at() < time.monotonic()
