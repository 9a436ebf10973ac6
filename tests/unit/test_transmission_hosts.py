"""Hosts of network namespaces: what is run to make them."""

import os

import benches  # noqa: F401
import pytest
from transmission import hosts as made

from tianji.core.errors import TianJiError


def words(switch="sw", spaces=("a", "b"), rate=1e9):
    return [" ".join(command) for command in made.commands(switch, list(spaces), rate)]


def test_every_host_has_a_link_to_the_switch_and_an_address_of_its_own():
    said = words()
    for i, space in enumerate("ab"):
        link = f"ip -n sw link add port{i} type veth peer name eth0 netns {space}"
        assert link in said
        assert f"ip -n {space} address add 10.231.7.{i + 1}/24 dev eth0" in said
        assert said.index(f"ip netns add {space}") < said.index(link)


def test_links_are_shaped_at_both_ends():
    shaped = [line for line in words(rate=1e9) if line.startswith("tc")]
    assert {line.split(" root")[0] for line in shaped} == {
        "tc -n sw qdisc add dev port0",
        "tc -n a qdisc add dev eth0",
        "tc -n sw qdisc add dev port1",
        "tc -n b qdisc add dev eth0",
    }
    assert all("tbf rate 1000000000bit burst 250000 latency 20.0ms" in line for line in shaped)


def test_a_link_without_a_rate_is_not_shaped():
    assert not [line for line in words(rate=None) if line.startswith("tc")]


def test_a_slow_link_still_lets_one_large_packet_through():
    (line, *_) = [line for line in words(rate=1e6) if line.startswith("tc")]
    assert f"burst {made.LEAST_BURST} " in line


def test_a_command_of_a_host_has_its_network_and_its_name():
    host = made.Host("space", "sw", 2)
    command = host.command(["program", "an argument"])
    assert command[:4] == ["ip", "netns", "exec", "space"]
    assert command[-3:] == ["host2", "program", "an argument"]


def test_the_agent_knows_every_host_by_address_and_name():
    script = made.agent_script([made.Host("space", "sw", 0)])
    assert "10.231.7.1|host0) exec ip netns exec space" in script


def test_only_namespaces_of_dead_makers_are_orphans():
    assert not made._orphaned(f"tianji-{os.getpid()}-00ff-switch")
    assert made._orphaned(f"tianji-{2**22 + 1}-00ff-switch")  # beyond the largest process id
    assert not made._orphaned(f"other-{2**22 + 1}-00ff-switch")


def test_without_its_tools_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(made.shutil, "which", lambda tool: None if tool == "tc" else tool)
    assert made.refusal() == "tc not found: install iproute2 and util-linux"
    with pytest.raises(TianJiError, match="iproute2"), made.Hosts(1):
        pass


def test_without_root_it_says_so(monkeypatch):
    monkeypatch.setattr(made.shutil, "which", lambda tool: tool)
    monkeypatch.setattr(made.os, "geteuid", lambda: 1000)
    assert "root" in made.refusal()
