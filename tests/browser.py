"""A headless browser that tests can drive, where one is installed."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


def find():
    """Where a browser is installed; the test is skipped where there is none."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    pytest.skip(f"no browser is installed: looked for {', '.join(NAMES)}")


# A browser speaks on its descriptors 3 and 4, whatever their numbers are here.
WIRED = """import os, sys
ends = [int(number) for number in sys.argv[1:3]]
os.dup2(ends[0], 3), os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def _started(command, its_in, its_out):
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (its_in, its_out)]
    process = subprocess.Popen(
        [sys.executable, "-c", WIRED, *map(str, ends), *command],
        pass_fds=ends,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for end in (its_in, its_out, *ends):
        os.close(end)
    return process


class Browser:
    """One page of a browser, spoken to over a pipe in the DevTools protocol."""

    def __init__(self):
        path = find()
        self.complaints = []  # what the page wrote to the console, or threw
        self.fetched = []  # every address that it asked for
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        its_in, self._out = os.pipe()
        self._in, its_out = os.pipe()
        command = [path, *FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = _started(command, its_in, its_out)
        self._heard, self._number, self._session = b"", 0, None
        try:
            self._attach()
        except BaseException:
            self._process.kill()
            self._tidy()
            raise

    def _attach(self):
        page = self._page()
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _page(self):
        self.call("Target.setDiscoverTargets", discover=True)
        while True:
            for target in self.call("Target.getTargets")["targetInfos"]:
                if target["type"] == "page":
                    return target["targetId"]

    def call(self, method, **parameters):
        """One command and its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._note(answer)

    def _next(self):
        deadline = time.monotonic() + 60
        while b"\0" not in self._heard:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            data = os.read(self._in, 1 << 20)
            assert data, "the browser has gone"
            self._heard += data
        line, _, self._heard = self._heard.partition(b"\0")
        return json.loads(line)

    def _note(self, event):
        said, what = event.get("params", {}), event.get("method")
        if what == "Runtime.exceptionThrown":
            self.complaints.append(said["exceptionDetails"])
        elif what == "Runtime.consoleAPICalled":
            self.complaints.append(said["args"])
        elif what == "Log.entryAdded":
            self.complaints.append(said["entry"])
        elif what == "Network.requestWillBeSent":
            self.fetched.append(said["request"]["url"])

    def look(self, width, height=900, scheme="light"):
        """Sets the size of the window and the colours that its user prefers."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def open(self, address):
        """Opens a page and waits until its script has drawn it."""
        self.call("Page.navigate", url=address)
        self.until("document.documentElement?.dataset.drawn > 0")

    def run(self, script):
        """The value of a JavaScript expression in the page."""
        given = {"expression": script, "returnByValue": True, "awaitPromise": True}
        answer = self.call("Runtime.evaluate", **given)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, script, seconds=20.0):
        """Waits until an expression is true in the page."""
        deadline = time.monotonic() + seconds
        while not self.run(f"Boolean({script})"):
            assert time.monotonic() < deadline, f"{script} did not come true"
            time.sleep(0.02)

    def point(self, x, y):
        """Moves the pointer."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path):
        """Writes a picture of the whole page."""
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(picture["data"]))

    def close(self):
        """Ends the browser."""
        self._session = None
        self.call("Browser.close")
        self._tidy()

    def _tidy(self):
        self._process.wait(120)
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()
