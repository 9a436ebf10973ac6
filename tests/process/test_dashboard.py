"""The live page over a socket: what it serves, to whom, and what it costs."""

import http.client
import json
import os
import socket
import threading
import time
from contextlib import ExitStack

import pytest
from commands import eventually
from made_runs import config, make, row, summary

from tianji.core.errors import TianJiError
from tianji.observe import dashboard
from tianji.observe.dashboard import Dashboard
from tianji.observe.report import LIVE_PORT

pytestmark = pytest.mark.process


class Served:
    """A dashboard of a made-up run that has not ended."""

    def __init__(self, folder):
        self.folder = folder
        self.dashboard = Dashboard(folder, 0)
        self.url = self.dashboard.start()
        self.port = int(self.url.rsplit(":", 1)[1].strip("/"))

    def ask(self, path="/", method="GET", host=None, **headers):
        """The answer to one request, with its body read."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.putrequest(method, path, skip_host=True)
        named = f"127.0.0.1:{self.port}" if host is None else host
        for each in named if isinstance(named, list) else [named]:
            connection.putheader("Host", each)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        answer.content = answer.read()
        connection.close()
        return answer

    def data(self):
        return json.loads(self.ask("/data.json").content)["runs"][0]


@pytest.fixture
def served(tmp_path):
    served = Served(make(tmp_path / "run", 20, status=None))
    yield served
    served.dashboard.close()


def add(folder, line):
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(line)


def end(folder, status="solved", second=20):
    part = folder / "summary.json.part"
    part.write_text(json.dumps(summary(row(second), status)))
    os.replace(part, folder / "summary.json")


def test_the_page_and_its_data_are_served_and_nothing_may_keep_them(served):
    page = served.ask("/")
    assert page.status == 200 and b'id="data">null</script>' in page.content
    data = served.ask("/data.json")
    assert json.loads(data.content)["runs"][0]["status"] == "running"
    for answer in (page, data):
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Access-Control-Allow-Origin"] is None
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert "connect-src 'self'" in page.headers["Content-Security-Policy"]


def test_a_row_is_seen_as_soon_as_it_is_whole(served):
    assert served.data()["numbers"]["env_steps"] == 20_000
    line = json.dumps(row(21)) + "\n"
    add(served.folder, line[:50])
    assert served.data()["numbers"]["env_steps"] == 20_000
    add(served.folder, line[50:])
    assert served.data()["numbers"]["env_steps"] == 21_000


def test_a_run_that_has_not_written_anything_yet_is_shown(tmp_path):
    (tmp_path / "run").mkdir()
    served = Served(tmp_path / "run")
    try:
        assert served.data()["status"] == "running"
        (served.folder / "config.json").write_text(json.dumps(config()))
        assert served.data()["config_name"] == "toy_dqn"
    finally:
        served.dashboard.close()


@pytest.mark.parametrize(
    "path",
    [
        "/config.json",
        "/..",
        "/../config.json",
        "///etc",
        "/index.html",
        "/data.json/",
        "/%2e%2e/",
        "*",
    ],
)
def test_nothing_else_is_there(served, path):
    assert served.ask(path).status == 404


def test_head_is_answered_without_a_body(served):
    answer = served.ask("/data.json", "HEAD")
    assert (answer.status, answer.content) == (200, b"")
    assert int(answer.headers["Content-Length"]) > 100


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(served, method):
    answer = served.ask("/data.json", method)
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_this_machine_may_be_called_by_its_names(served, host):
    assert served.ask("/", host=f"{host}:{served.port}").status == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost@evil", ""])
def test_a_page_elsewhere_cannot_reach_it_under_its_own_name(served, host):
    for said in (f"{host}:{served.port}", host):
        answer = served.ask("/data.json", host=said)
        assert answer.status == 403 and b"runs" not in answer.content


def test_a_host_without_the_right_port_or_with_two_names_is_refused(served):
    assert served.ask("/", host="localhost:1").status == 403
    assert served.ask("/", host="localhost").status == 403
    ours = f"localhost:{served.port}"
    assert served.ask("/", host=[ours, "evil.example"]).status == 403
    assert served.ask("/", host=[]).status == 403


def test_only_this_machine_is_listened_to(served):
    assert served.url.startswith("http://127.0.0.1:")
    with socket.socket() as other:  # the same port on another address of ours is still free
        other.bind(("127.0.0.2", served.port))


def test_a_port_in_use_is_named_with_what_to_do(served, tmp_path):
    said = (
        f"port {served.port} is in use: name another.*--dashboard {served.port + 1}, or 0 for any"
    )
    with pytest.raises(TianJiError, match=said):
        Dashboard(tmp_path, served.port).start()
    with pytest.raises(TianJiError, match="want a port from 0 to 65535, got 70000"):
        Dashboard(tmp_path, 70_000).start()
    assert Dashboard(tmp_path)._port == LIVE_PORT


def test_whoever_looks_sees_the_end_before_the_server_goes(served):
    assert served.data()["status"] == "running"
    end(served.folder)
    closing = threading.Thread(target=served.dashboard.close)
    closing.start()
    assert served.data()["status"] == "solved"
    closing.join(10)
    assert not closing.is_alive()
    with pytest.raises(OSError):
        served.ask()


def test_nobody_looks_and_closing_waits_for_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr("tianji.observe.dashboard.LINGER_SECONDS", 600.0)
    served = Served(make(tmp_path / "run", 5, status=None))
    end(served.folder, second=5)
    served.dashboard.close()
    served.dashboard.close()
    eventually(lambda: not any(t.name == "dashboard" for t in threading.enumerate()))


def test_the_summary_of_before_a_resume_is_not_the_end(tmp_path):
    served = Served(make(tmp_path / "run", 20, status="interrupted"))
    try:
        assert served.data()["status"] == "running"
        end(served.folder, "finished")
        assert served.data()["status"] == "finished"
    finally:
        served.dashboard.close()


def test_a_browser_that_hangs_up_or_says_nothing_disturbs_nobody(served, capfd):
    with socket.create_connection(("127.0.0.1", served.port)) as silent:
        with socket.create_connection(("127.0.0.1", served.port)) as rude:
            rude.sendall(b"GET /data.json HTTP/1.1\r\nHost: x")
        assert served.ask("/").status == 200
        silent.sendall(b"\x16\x03\x01\n\n")
    assert capfd.readouterr().err == ""


def test_the_same_port_can_be_had_again_after_somebody_looked(tmp_path):
    folder = make(tmp_path / "run", 5, status=None)
    first = Served(folder)
    assert first.ask("/").status == 200
    first.dashboard.close()
    again = Dashboard(folder, first.port)
    assert again.start() == first.url
    again.close()


def hung_up(connection):
    """Whether the server ended this connection; waits until it says something or does."""
    connection.settimeout(10)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_sixteen_connections_at_once_are_all_that_it_holds(served):
    def connect():
        return closing.enter_context(socket.create_connection(("127.0.0.1", served.port)))

    def answered():
        try:
            return served.ask("/").status == 200
        except (ConnectionError, http.client.HTTPException):
            return False

    with ExitStack() as closing:
        held = [connect() for _ in range(dashboard.MOST_CONNECTIONS)]
        assert all(hung_up(connect()) for _ in range(50))
        assert not answered()
        held[0].close()
        eventually(answered)


def test_a_browser_that_speaks_a_letter_now_and_then_is_hung_up_on(served, monkeypatch, capfd):
    monkeypatch.setattr(dashboard, "REQUEST_SECONDS", 0.3)
    with socket.create_connection(("127.0.0.1", served.port)) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: ")

        def dropped():
            try:
                slow.sendall(b"x")
            except ConnectionError:
                return True
            return False

        eventually(dropped)
    assert served.ask("/").status == 200
    assert capfd.readouterr().err == ""


def test_a_question_a_second_costs_less_than_a_hundredth_of_a_core(tmp_path):
    served = Served(make(tmp_path / "run", 3_600, status=None, actors=16))
    try:
        served.data()
        began = time.process_time()
        for second in range(3_601, 3_621):
            add(served.folder, json.dumps(row(second, actors=16)) + "\n")
            served.ask("/data.json")
        assert (time.process_time() - began) / 20 < 0.010  # our own asking included
    finally:
        served.dashboard.close()
