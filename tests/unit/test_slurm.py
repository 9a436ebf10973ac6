"""The job for Slurm asks for what the run needs, and what cannot work is refused."""

import re
import shlex

import pytest
from commands import ROOT
from hypothesis import given
from hypothesis import strategies as st

from tianji.config import load
from tianji.core.errors import TianJiError
from tianji.machine.placement import n_ranks, place
from tianji.machine.slurm import SlurmRequest, script, seconds_of

CONFIG = ROOT / "configs" / "cartpole_dqn.py"


def written(*overrides, **wish):
    config = load(CONFIG, overrides)
    words, path = ["my job.py"], "/opt/my venv/bin"
    return script(
        config, SlurmRequest(**{"nodes": 2} | wish), words, path, "my job", "/home/me/my work"
    )


def asked(text):
    """What the head of a script asks for."""
    return dict(re.findall(r"^#SBATCH --([\w-]+)=?(.*)$", text, re.MULTILINE))


def test_there_is_room_for_every_process_of_the_run():
    for n in range(1, 9):
        head = asked(written(f"actor_cfg.num={n}"))
        places = int(head["nodes"]) * int(head["ntasks-per-node"])
        needed = n_ranks(load(CONFIG, [f"actor_cfg.num={n}"]))
        assert needed <= places < needed + 2


def test_the_job_is_requeued_goes_on_in_its_output_and_is_warned():
    head = asked(written())
    assert head["requeue"] == "" and head["open-mode"] == "append"
    assert head["signal"] == "B:USR1@120"


def test_words_with_spaces_stay_words():
    text = written()
    assert "tianji train 'my job.py' --engine mpi" in text
    assert "export PATH='/opt/my venv/bin':" in text
    assert 'run_dir="runs/my_job-$SLURM_JOB_ID"' in text and asked(text)["job-name"] == "my_job"


def test_what_was_wished_is_asked_for():
    wish = dict(time="1-00:00:00", memory="16G", gpus=1, partition="long", account="lab")
    head = asked(written(**wish, cpus_per_task=4, tasks_per_node=3))
    assert (head["time"], head["mem"], head["gpus-per-node"]) == ("1-00:00:00", "16G", "1")
    assert (head["partition"], head["account"]) == ("long", "lab")
    assert (head["cpus-per-task"], head["ntasks-per-node"]) == ("4", "3")


def test_what_was_not_wished_is_left_to_the_site():
    assert not {"mem", "gpus-per-node", "partition", "account"} & set(asked(written()))


@pytest.mark.parametrize("cores", [1, 4])
@pytest.mark.parametrize(("nodes", "n_actors"), [(2, 12), (3, 7), (2, 1), (4, 6)])
def test_every_node_has_the_cores_of_its_roles_and_few_more(nodes, n_actors, cores):
    keys = [f"learner_cfg.cores={cores}", f"actor_cfg.num={n_actors}"]
    head, config = asked(written(*keys, nodes=nodes)), load(CONFIG, keys)
    tasks, cpus = int(head["ntasks-per-node"]), int(head["cpus-per-task"])
    hosts = [str(rank // tasks) for rank in range(n_ranks(config))]
    wanted = dict.fromkeys(hosts, 0)
    for home, rank in place(config, hosts).items():
        wanted[hosts[rank]] += {"learner": cores, "actor": 1, "launcher": 0}[home.split("-")[0]]
    assert max(wanted.values()) <= tasks * cpus < max(wanted.values()) + tasks


def test_one_node_needs_no_mpi():
    text = written("actor_cfg.num=7", nodes=1)
    assert "--engine process" in text
    assert (asked(text)["ntasks-per-node"], asked(text)["cpus-per-task"]) == ("1", "8")


def test_one_node_has_the_cores_of_all_roles():
    text = written("actor_cfg.num=12", "learner_cfg.cores=4", nodes=1)
    assert asked(text)["cpus-per-task"] == "16"
    text = written("actor_cfg.num=3", "actor_cfg.cores=2", "buffer_cfg.cores=1", nodes=1)
    assert asked(text)["cpus-per-task"] == "8"


def test_the_job_runs_where_it_was_written():
    assert asked(written())["chdir"] == "'/home/me/my work'"


def test_a_learner_on_a_gpu_asks_for_one():
    with pytest.raises(TianJiError, match="would ask for no GPU: add --gpus 1"):
        written("learner_cfg.device='cuda'")
    with pytest.raises(TianJiError, match=r"actor_cfg\.device is 'cuda'"):
        written("actor_cfg.device='cuda'")
    assert asked(written("learner_cfg.device='cuda'", gpus=1))["gpus-per-node"] == "1"


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        ("30", 1800),
        ("30:10", 1810),
        ("04:00:00", 14_400),
        ("1-12", 129_600),
        ("1-00:30", 88_200),
        ("2-00:00:05", 172_805),
    ],
)
def test_a_time_is_read_as_slurm_reads_it(time, seconds):
    assert seconds_of(time) == seconds


def test_lines_of_ones_own_come_before_the_run():
    text = written(setup=["module load cuda", "echo $HOSTNAME"])
    assert text.index("module load cuda\necho $HOSTNAME\n") < text.index("tianji train")


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (dict(nodes=9), "the run has 3 processes, too few for 9 nodes: --nodes 3 at most, or more"),
        (dict(time="1"), "--time: 1 is 1 min 0 s, and a job is told to leave 120 s before its end"),
        (dict(time="09:59"), "want 10 minutes or more"),
        (dict(tasks_per_node=1), "room for 2 processes, and this run has 3: --tasks-per-node 2"),
        (dict(nodes=0), "--nodes: want 1 or more, got 0"),
        (dict(nodes=1, tasks_per_node=2), "one node is one task; give it --cpus-per-task"),
        (dict(gpus=-1), "--gpus: want 1 or more"),
        (dict(time="soon"), "--time: want as in 04:00:00"),
        (dict(time="04:00:00\n#SBATCH --exclusive"), "--time"),
        (dict(memory="lots"), "--mem: want as in 16G, got 'lots'"),
        (dict(partition="a b"), "--partition"),
        (dict(account="$(id)"), "--account"),
        (dict(setup=["one\ntwo"]), "--setup: want one line"),
    ],
)
def test_what_cannot_work_is_refused(wish, words):
    with pytest.raises(TianJiError, match=re.escape(words)):
        written(**wish)


def test_a_node_that_would_stay_empty_is_refused():
    with pytest.raises(TianJiError, match="has 5 processes, too few for 4 nodes: --nodes 3 at"):
        written("actor_cfg.num=3", nodes=4)


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)


@given(words=st.lists(NAMES, max_size=3), path=NAMES, job=st.text(max_size=9))
def test_any_word_is_one_word_to_the_shell(words, path, job):
    text = script(load(CONFIG), SlurmRequest(1), words, path, job, "/home/me")
    read = shlex.split(text[text.index("tianji train") :].partition('--run-dir "$run_dir"')[0])
    assert read == ["tianji", "train", *words, "--engine", "process", "--quiet"]
    assert re.search(r'^run_dir="runs/[A-Za-z0-9_.-]*-\$SLURM_JOB_ID" ', text, re.MULTILINE)


@pytest.mark.parametrize("folder", ["/home/a\nrm -rf /", "/a\r", "/\udcff", "/a\0"])
def test_a_folder_that_would_end_a_line_of_slurms_is_refused(folder):
    with pytest.raises(TianJiError, match="cannot stand in a job of Slurm"):
        script(load(CONFIG), SlurmRequest(1), ["a"], "/bin", "job", folder)


@pytest.mark.parametrize("time", ["9" * 5_000, "\u0663\u0660", "1" * 7 + ":00", "99999-00"])
def test_a_time_of_many_or_of_strange_digits_is_refused(time):
    with pytest.raises(TianJiError, match="--time: want"):
        SlurmRequest(1, time=time)
