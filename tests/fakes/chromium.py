"""A real Chromium without a screen, driven over its DevTools protocol as a person would drive it.

    with Chromium(directory) as browser, browser.page(width=1280, height=800) as page:
        page.open("http://127.0.0.1:8000/")
        page.click("#more")
        page.wait("document.title === 'done'")

One thread sends, and hears what comes while it waits for an answer. Needs a Chromium or Chrome on the path, such as Debian's
package `chromium`.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from waiting import slow_s
from websockets.sync.client import connect

from kafka_actors.testing.watchdog import Watchdog

NAMES = ("chromium", "chromium-browser", "google-chrome")
START_S = 60.0
ANSWER_S = 30.0
SEVERE = frozenset({"error", "warning"})


class BrowserError(Exception):
    """Command that the browser refused, or an exception in the page."""


def program() -> str | None:
    """Path of the browser, None if there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Chromium:
    """A browser with a profile of its own in `directory`. It ends when it is left, or with its owner."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._number = 0
        self._opened = contextlib.ExitStack()
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Chromium:
        found = program()
        assert found is not None
        self._directory.mkdir(parents=True, exist_ok=True)
        self._watchdog = Watchdog()
        with (self._directory / "stderr").open("wb") as errors:
            self._process = subprocess.Popen(
                [found, *self._arguments()],
                env={**os.environ, "HOME": str(self._directory), "XDG_CONFIG_HOME": str(self._directory)},
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                start_new_session=True,  # it has processes of its own, which are to end with it
            )
        self._watchdog.watch(self._process.pid)
        # It sends what it likes between answers: nothing may be left lying there until the connection counts as dead.
        wire = connect(
            self._address(), proxy=None, compression=None, max_size=None, max_queue=None, ping_interval=None
        )
        self._socket = self._opened.enter_context(wire)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(Exception):
            self.call("Browser.close")
        self._opened.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._watchdog.forget(self._process.pid)
        self._watchdog.close()

    @contextlib.contextmanager
    def page(self, width: int = 1280, height: int = 900, *, dark: bool = False) -> Iterator[Page]:
        """A page of that size, which is closed at the end."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.call("Emulation.setFocusEmulationEnabled", enabled=True)  # else one page at most has the focus
        page.look(width, height, dark=dark)
        try:
            yield page
        finally:
            self.call("Target.closeTarget", targetId=target)

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """The answer to a command; what comes before it is kept in `events`. Raises `BrowserError`."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params}
        self._socket.send(json.dumps(message if session is None else {**message, "sessionId": session}))
        end = time.monotonic() + slow_s(ANSWER_S)
        while True:
            heard = json.loads(self._socket.recv(timeout=max(0.0, end - time.monotonic())))
            if heard.get("id") != number:
                self.events.append(heard)
            elif "error" in heard:
                raise BrowserError(f"{method}: {heard['error']['message']}")
            else:
                result: dict[str, Any] = heard["result"]
                return result

    def _arguments(self) -> list[str]:
        return [
            "--headless=new",
            "--no-sandbox",  # which root may not have; the pages are the tests' own
            "--remote-debugging-port=0",
            f"--user-data-dir={self._directory / 'profile'}",
            "--no-first-run",
            "--no-proxy-server",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-gpu",
            "--force-color-profile=srgb",
            "about:blank",
        ]

    def _address(self) -> str:
        """Port and path of the DevTools, which it writes into its profile."""
        file = self._directory / "profile" / "DevToolsActivePort"
        end = time.monotonic() + slow_s(START_S)
        while True:
            lines = file.read_text().split() if file.exists() else []
            if len(lines) == 2:
                return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
            if self._process.poll() is not None or time.monotonic() > end:
                said = (self._directory / "stderr").read_text(errors="replace")
                raise BrowserError(f"the browser did not start: {said[-2000:]}")
            time.sleep(0.05)


class Page:
    """One page. Selectors are CSS; expressions are JavaScript, and what they give is what JSON can say."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser = browser
        self._session = session

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A command of the DevTools protocol."""
        return self._browser.call(method, self._session, **params)

    def look(self, width: int, height: int, *, dark: bool = False) -> None:
        """The size of the screen, in pixels, and what its owner prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, url: str) -> None:
        """Goes there; returns when the page is loaded."""
        self.call("Page.navigate", url=url)
        self.wait(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")

    def run(self, expression: str) -> Any:
        """Returns the value of the expression, awaited if need be. Raises `BrowserError` with its exception."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if failure := done.get("exceptionDetails"):
            raise BrowserError(failure.get("exception", {}).get("description", failure["text"]))
        return done["result"].get("value")

    def wait(self, expression: str, timeout_s: float = 30) -> Any:
        """Waits until the value of the expression is true; returns it."""
        end = time.monotonic() + slow_s(timeout_s)
        while True:
            try:
                if found := self.run(expression):
                    return found
                last: object = found
            except BrowserError as error:  # the page before is going away just now
                last = error
            if time.monotonic() > end:
                raise AssertionError(f"still not after {timeout_s:g} s: {expression} (it is {last!r})")
            time.sleep(0.05)

    def text(self, selector: str) -> str:
        """All text in the first such element."""
        found: str = self.run(f"document.querySelector({json.dumps(selector)}).textContent")
        return found

    def visible(self, selector: str) -> bool:
        """Whether it is there to be seen."""
        return bool(self.run(f"document.querySelector({json.dumps(selector)})?.checkVisibility() ?? false"))

    # ------------------------------------------------ hands

    def hover(self, selector: str, *, at: float = 0.5) -> tuple[float, float]:
        """The pointer into the element, `at` this share of its width. Returns where that is."""
        place = self.run(
            f"(() => {{ const node = document.querySelector({json.dumps(selector)});"
            " node.scrollIntoView({ block: 'center', inline: 'nearest' });"
            " const { left, top, width, height } = node.getBoundingClientRect();"
            f" return [left + width * {at}, top + height / 2]; }})()"
        )
        x, y = place
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        return x, y

    def click(self, selector: str) -> None:
        """Clicks as with a mouse."""
        x, y = self.hover(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def write(self, text: str) -> None:
        """Into what has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """One key by its name, such as `ArrowLeft`."""
        text = {"text": "\r"} if key == "Enter" else {}
        codes = {
            "Enter": 13,
            "Escape": 27,
            "Tab": 9,
            "ArrowLeft": 37,
            "ArrowRight": 39,
            "Home": 36,
            "End": 35,
        }
        about = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **about, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    # ------------------------------------------------ what happened

    def heard(self, method: str) -> list[dict[str, Any]]:
        """The events of this kind so far."""
        self.run("0")  # what came before the answer is there now
        mine = (event for event in self._browser.events if event.get("sessionId") == self._session)
        return [event["params"] for event in mine if event["method"] == method]

    def complaints(self) -> list[str]:
        """Exceptions, errors and warnings of the page and of the browser about it, broken policies included."""
        thrown = [found["exceptionDetails"] for found in self.heard("Runtime.exceptionThrown")]
        found = [each.get("exception", {}).get("description", each["text"]) for each in thrown]
        for said in self.heard("Runtime.consoleAPICalled"):
            if said["type"] in SEVERE:
                found.append(
                    " ".join(str(part.get("value", part.get("description"))) for part in said["args"])
                )
        entries = (logged["entry"] for logged in self.heard("Log.entryAdded"))
        return found + [f"{each['source']}: {each['text']}" for each in entries if each["level"] in SEVERE]

    def requests(self) -> list[str]:
        """The addresses that the page asked for, itself included."""
        return [sent["request"]["url"] for sent in self.heard("Network.requestWillBeSent")]

    def screenshot(self, file: Path) -> None:
        """The whole page, also what lies below the screen, as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        file.write_bytes(base64.b64decode(taken["data"]))
