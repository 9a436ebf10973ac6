"""Several hosts on one machine: network namespaces on a switch, with links of a known rate.

    with Hosts(2, bits_per_second=1e9) as hosts:
        hosts[1].start([sys.executable, "receive.py"])
        hosts[0].run([sys.executable, "send.py", hosts[1].address])
        assert hosts[0].sent_bytes() > n_bytes       # it really went over the link

The switch is a bridge in a namespace of its own, so that nothing of the machine's own network is
touched. Each link is shaped at both ends: a host can neither send nor receive faster. Processes,
memory and files are still those of one machine, and a transport may find that out; the counters
of the links say whether it did.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tianji.core.errors import TianJiError

TOOLS = ("ip", "tc", "unshare")
DEVICE = "eth0"  # a host's end of its link
SUBNET = "10.231.7"  # seen by nobody outside the namespaces
BURST_SECONDS = 0.002  # what a link may send at once, in time at its rate
QUEUE_SECONDS = 0.02  # what may wait in front of a link, likewise
LEAST_BURST = 64 * 1024  # bytes; one large packet of the kernel's own making must fit
ENTER = 'echo "$0" > /proc/sys/kernel/hostname; exec "$@"'
GRACE_SECONDS = 5.0  # for the processes of a namespace to go once they were killed


class Host:
    """One namespace with one link; commands in it see that host's name and network alone."""

    def __init__(self, space: str, switch: str, index: int) -> None:
        self.space = space
        self.name = f"host{index}"
        self.address = f"{SUBNET}.{index + 1}"
        self._switch = switch
        self._port = f"port{index}"

    def command(self, words: Sequence[str]) -> list[str]:
        """`words` as they are run in this host."""
        inside = ["unshare", "--uts", "sh", "-c", ENTER, self.name, *words]
        return ["ip", "netns", "exec", self.space, *inside]

    def run(self, words: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end and returns its output; `options` are those of subprocess."""
        return subprocess.run(
            self.command(words), **{"text": True, "capture_output": True, "check": True} | options
        )

    def start(self, words: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        """Starts a command in the background; it is killed with the hosts at the latest."""
        return subprocess.Popen(self.command(words), **{"text": True} | options)

    def sent_bytes(self) -> int:
        """Bytes that left this host over its link since it was made, headers included."""
        return self._counted("tx")

    def received_bytes(self) -> int:
        """Bytes that came to this host over its link."""
        return self._counted("rx")

    def _counted(self, direction: str) -> int:
        text = _run(["ip", "-n", self.space, "-s", "-j", "link", "show", DEVICE])
        return int(json.loads(text)[0]["stats64"][direction]["bytes"])

    def cut(self) -> None:
        """Unplugs the link at the switch: packets vanish, and no end is told."""
        _run(["ip", "-n", self._switch, "link", "set", self._port, "nomaster"])

    def mend(self) -> None:
        """Plugs the link in again."""
        _run(["ip", "-n", self._switch, "link", "set", self._port, "master", "switch"])

    def processes(self) -> list[int]:
        """The processes that run in this host."""
        return _processes(self.space)

    def lose(self) -> None:
        """Kills everything that runs in this host, as a failing machine does."""
        _empty(self.space)


class Hosts:
    """`n` hosts that reach each other; gone, with all that runs in them, when the body ends."""

    def __init__(self, n: int, bits_per_second: float | None = 1e9) -> None:
        self._label = f"tianji-{os.getpid()}-{id(self) & 0xFFFF:04x}"
        self._rate = bits_per_second  # None: as fast as the machine can
        self._switch = f"{self._label}-switch"
        self._spaces = [f"{self._label}-{i}" for i in range(n)]
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.hosts = [Host(space, self._switch, i) for i, space in enumerate(self._spaces)]

    def __getitem__(self, index: int) -> Host:
        return self.hosts[index]

    def __iter__(self) -> Iterator[Host]:
        return iter(self.hosts)

    def __len__(self) -> int:
        return len(self.hosts)

    def __enter__(self) -> Hosts:
        if reason := refusal():
            raise TianJiError(f"hosts of network namespaces: {reason}")
        sweep()
        try:
            for words in commands(self._switch, self._spaces, self._rate):
                _run(words)
            self._folder = tempfile.TemporaryDirectory(prefix="tianji-hosts-")
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()

    def remove(self) -> None:
        """Kills what still runs in the hosts and removes them."""
        present = _spaces()
        for space in [*self._spaces, self._switch]:
            if space in present:
                _remove(space)
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    @property
    def folder(self) -> Path:
        """A folder for files about these hosts, which goes with them."""
        assert self._folder is not None, "the hosts are there within `with` only"
        return Path(self._folder.name)

    def agent(self) -> Path:
        """A script in the place of ssh, for mpirun: `SCRIPT ADDRESS COMMAND ...`."""
        path = self.folder / "agent"
        path.write_text(agent_script(self.hosts))
        path.chmod(0o755)
        return path

    def hostfile(self, slots: int | Sequence[int]) -> Path:
        """For mpirun: the addresses with `slots` ranks each, or with a number for each host."""
        each = [slots] * len(self) if isinstance(slots, int) else list(slots)
        path = self.folder / f"hostfile-{'-'.join(map(str, each))}"
        lines = [f"{host.address} slots={n}\n" for host, n in zip(self, each, strict=True) if n]
        path.write_text("".join(lines))
        return path


def refusal() -> str | None:
    """Why hosts cannot be made here; None where they can."""
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"{', '.join(missing)} not found: install iproute2 and util-linux"
    if os.geteuid() != 0:
        return "they need root: run the command as root, or in a container of your own"
    space = f"tianji-{os.getpid()}-try"
    try:
        _run(["ip", "netns", "add", space])
        _run(["ip", "netns", "delete", space])
    except TianJiError as error:
        return f"this machine does not permit them ({error})"
    return None


def commands(switch: str, spaces: list[str], rate: float | None) -> list[list[str]]:
    """What makes the switch, the hosts and their links, in this order."""
    made = [
        ["ip", "netns", "add", switch],
        ["ip", "-n", switch, "link", "add", "switch", "type", "bridge"],
        ["ip", "-n", switch, "link", "set", "switch", "up"],
    ]
    for i, space in enumerate(spaces):
        made += _link(switch, space, i)
        if rate is not None:
            made += [_shaping(switch, f"port{i}", rate), _shaping(space, DEVICE, rate)]
    return made


def _link(switch: str, space: str, i: int) -> list[list[str]]:
    within, port = ["ip", "-n", space], f"port{i}"
    peer = ["peer", "name", DEVICE, "netns", space]
    return [
        ["ip", "netns", "add", space],
        ["ip", "-n", switch, "link", "add", port, "type", "veth", *peer],
        ["ip", "-n", switch, "link", "set", port, "master", "switch", "up"],
        [*within, "address", "add", f"{SUBNET}.{i + 1}/24", "dev", DEVICE],
        [*within, "link", "set", "lo", "up"],
        [*within, "link", "set", DEVICE, "up"],
    ]


def _shaping(space: str, device: str, rate: float) -> list[str]:
    """A token bucket with a short burst, or the first megabytes would outrun the link."""
    burst = max(LEAST_BURST, int(rate / 8 * BURST_SECONDS))
    bucket = ["rate", f"{int(rate)}bit", "burst", str(burst), "latency", f"{QUEUE_SECONDS * 1e3}ms"]
    return ["tc", "-n", space, "qdisc", "add", "dev", device, "root", "tbf", *bucket]


def agent_script(hosts: Sequence[Host]) -> str:
    """What `mpirun --prtemca plm_ssh_agent SCRIPT` calls as `SCRIPT ADDRESS COMMAND ...`."""
    cases = []
    for host in hosts:
        words = " ".join(map(shlex.quote, host.command(["sh", "-c"])))
        cases.append(f'{host.address}|{host.name}) exec {words} "$*" ;;')
    return "\n".join(
        [
            "#!/bin/sh",
            'address="$1"; shift',
            'case "$address" in',
            *cases,
            '*) echo "no such host: $address" >&2; exit 255 ;;',
            "esac",
            "",
        ]
    )


def sweep() -> list[str]:
    """Removes the namespaces that makers left behind which were killed; returns their names."""
    left = [space for space in sorted(_spaces()) if _orphaned(space)]
    for space in left:
        _remove(space)
    return left


def _orphaned(space: str) -> bool:
    parts = space.split("-")
    ours = len(parts) == 4 and parts[0] == "tianji" and parts[1].isdigit()
    return ours and not Path(f"/proc/{parts[1]}").exists()


def _spaces() -> set[str]:
    return {line.split()[0] for line in _run(["ip", "netns", "list"]).splitlines() if line}


def _remove(space: str) -> None:
    _empty(space)
    _run(["ip", "netns", "delete", space])


def _empty(space: str) -> None:
    """Kills what runs in a namespace and waits until it has gone."""
    deadline = time.monotonic() + GRACE_SECONDS
    while (left := _processes(space)) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _processes(space: str) -> list[int]:
    return [int(pid) for pid in _run(["ip", "netns", "pids", space]).split()]


def _run(words: list[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise TianJiError(f"{shlex.join(words)}: {done.stderr.strip() or done.returncode}")
    return done.stdout
