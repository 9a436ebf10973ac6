"""Hosts made of network namespaces: names, links and counters of their own, and gone afterwards."""

import socket
import subprocess
import sys

import benches
import pytest
from transmission import hosts as made

HERE = made.refusal()
pytestmark = pytest.mark.process
made_here = pytest.mark.skipif(HERE is not None, reason=str(HERE))


def test_the_agent_refuses_hosts_that_it_does_not_know(tmp_path):
    script = tmp_path / "agent"
    script.write_text(made.agent_script([made.Host("space", "sw", 0)]))
    done = subprocess.run(["sh", script, "10.9.9.9", "true"], capture_output=True, text=True)
    assert done.returncode == 255 and "no such host: 10.9.9.9" in done.stderr


@made_here
def test_a_host_has_its_own_name_and_bytes_are_counted():
    with made.Hosts(2) as hosts:
        assert hosts[1].run(["cat", "/proc/sys/kernel/hostname"]).stdout == "host1\n"
        before = hosts[0].sent_bytes()
        code = "import socket, sys; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        code += "for _ in range(9): s.sendto(bytes(1000), (sys.argv[1], 9))"
        hosts[0].run([sys.executable, "-c", code, hosts[1].address])
        assert hosts[0].sent_bytes() - before > 9_000
    assert socket.gethostname() != "host1"


@made_here
def test_nothing_is_left_behind_whatever_the_body_does():
    class Broken(Exception):
        pass

    with pytest.raises(Broken), made.Hosts(2) as hosts:
        sleeper = hosts[0].start(["sleep", "100"])
        folder, spaces = hosts.folder, {host.space for host in hosts}
        assert spaces <= made._spaces()
        raise Broken
    assert sleeper.wait(120) < 0
    assert not folder.exists()
    assert not spaces & made._spaces()


@made_here
def test_a_cut_link_carries_nothing_until_it_is_mended():
    code = "import socket, sys; socket.create_connection((sys.argv[1], 9), 1)"
    with made.Hosts(2) as hosts:
        ask = [sys.executable, "-c", code, hosts[1].address]
        assert "ConnectionRefused" in hosts[0].run(ask, check=False).stderr
        hosts[1].cut()
        assert "timed out" in hosts[0].run(ask, check=False).stderr
        hosts[1].mend()
        assert "ConnectionRefused" in hosts[0].run(ask, check=False).stderr


@made_here
def test_what_a_killed_maker_left_is_swept():
    code = (
        f"import os, sys; sys.path.append({str(benches.BENCH)!r})\n"
        "from transmission.hosts import Hosts\n"
        "with Hosts(1) as hosts: print(hosts[0].space, flush=True); os._exit(9)"
    )
    left = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    space = left.stdout.strip()
    assert space in made._spaces()
    assert space in made.sweep()
    assert space not in made._spaces()
