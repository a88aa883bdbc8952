"""The status page in a real browser: what it shows of the sample, how it is used, and what it must never do."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes.chromium import Chromium, Page, program
from fakes.status_sample import sample_history, sample_status
from waiting import until

from kafka_actors.job.machines.health import Health
from kafka_actors.job.machines.timeline import TimelineEntry
from kafka_actors.job.status import JobStatus
from kafka_actors.status_page.machines.history import History, PlotPoint
from kafka_actors.status_page.machines.http import HttpRequest, HttpResponse, plain
from kafka_actors.status_page.server import StatusServer, listen
from kafka_actors.status_page.site import page as the_page

pytestmark = pytest.mark.skipif(
    program() is None, reason="there is no Chromium on this machine: apt-get install chromium"
)

HOSTILE = "<img src=x onerror=\"document.title='taken'\">"
SIZES = {"phone": (375, 812), "laptop": (1280, 800), "wall": (2560, 1440)}
POINTS = 900
NOT_KNOWN = "\N{EN DASH}"
FRESH = "!document.querySelector('#stale').checkVisibility()"
"""A page that gets its answers in time. One that gets no processor for three seconds has called its numbers stale, and goes on."""


class Served:
    """The sample, given out by the real server on a thread of its own.

    `status` makes it for a moment, `points` changes those of the plots; `asked` are the paths, `after` the points
    from which on more were wanted.
    """

    def __init__(self) -> None:
        self.status: Callable[[float], JobStatus] = lambda at_s: sample_status(at_s=at_s)
        self.points: Callable[[list[PlotPoint]], list[PlotPoint]] = lambda points: points
        self.asked: list[str] = []
        self.after: list[int] = []
        self._begun = time.time()
        self._run = "one"
        self.start("127.0.0.1", 0)

    def start(self, host: str, port: int) -> None:
        """Listens there from now on."""
        self._listening = listen("--status", host, port)
        self.port = self._listening.getsockname()[1]
        self.url = f"http://{host}:{self.port}/"
        self._up, self._loop = threading.Event(), asyncio.new_event_loop()
        self._down = asyncio.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()))
        self._thread.start()
        self._up.wait()

    def stop(self) -> None:
        """Nobody answers there any more."""
        self._loop.call_soon_threadsafe(self._down.set)
        self._thread.join()
        self._loop.close()

    def restart_job(self) -> None:
        """The job is another process from now on, which counts its points anew."""
        self._run, self._begun = "two", time.time()

    async def _serve(self) -> None:
        server = StatusServer(self._answer)
        await server.start(self._listening)
        self._up.set()
        await self._down.wait()
        await server.close()

    def _answer(self, request: HttpRequest) -> HttpResponse:
        self.asked.append(request.path)
        if request.path == "/":
            return HttpResponse(200, the_page().html, "text/html; charset=utf-8", the_page().policy)
        if request.path == "/status.json":
            return _json(self.status(time.time()))
        if request.path == "/history.json":
            return _json(self._history(int(request.query.get("after", "0"))))
        return plain(404, "nothing here")

    def _history(self, after: int) -> History:
        """A point a second; those that were there at the beginning end then."""
        passed = int(time.time() - self._begun)
        history = sample_history(POINTS + passed, last_s=self._begun + passed)
        self.after.append(after)
        points = [point for point in history.points if after > history.last or point.number > after]
        return msgspec.structs.replace(history, run=self._run, points=self.points(points[-POINTS:]))


def _json(thing: object) -> HttpResponse:
    return HttpResponse(200, msgspec.json.encode(thing), "application/json")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("chromium")) as started:
        yield started


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    if made._thread.is_alive():
        made.stop()


@pytest.fixture
def page(browser: Chromium) -> Iterator[Page]:
    with browser.page() as opened:
        yield opened


def opened(page: Page, served: Served) -> Page:
    """The page with the first numbers on it."""
    page.open(served.url)
    page.wait("document.querySelector('#rows .badge') !== null")
    return page


def changed(make: Callable[[JobStatus], JobStatus]) -> Callable[[float], JobStatus]:
    """The sample with something else in it."""
    return lambda at_s: make(sample_status(at_s=at_s))


def rows(page: Page) -> list[list[str]]:
    """The table as it stands: the texts of its cells."""
    found: list[list[str]] = page.run(
        "[...document.querySelectorAll('#rows tr:not(.space)')].map((row) =>"
        " [...row.cells].map((cell, place) => (place ? cell : cell.querySelector('button')).textContent))"
    )
    return found


def column(page: Page, number: int) -> list[str]:
    return [row[number] for row in rows(page)]


def sort_by(page: Page, field: str) -> None:
    page.click(f"th.c-{field} button")


def choice(page: Page, group: str, text: str) -> None:
    """Presses the button that begins with this text."""
    place = page.run(
        f"[...document.querySelectorAll('{group} button')].findIndex((node) => node.textContent.startsWith('{text}'))"
    )
    page.click(f"{group} button:nth-child({place + 1})")


# ---------------------------------------------------------------- what is shown


def test_the_numbers_of_the_sample_are_on_the_page(page, served):
    opened(page, served)
    expected = {
        "#job-name": "orders-scorer",
        "#job-state": "running",
        "#ready": "ready",
        "#group": "scorer",
        "#records-rate": "212k/s",
        "#bytes-rate": "21.2 MB/s",
        "#records-total": "184M in all",
        "#latency": "84 ms",
        "#latency-high": "p99 1.31 s",
        "#workers": "3 of 4",
        "#partitions-count": "24",
        "#rebalances": "3",
        "#generation": "generation 7",
        "#restarts": "2",
    }
    assert {selector: page.text(selector) for selector in expected} == expected
    lag = sample_status().totals.lag
    assert lag is not None
    assert page.text("#lag") == f"{lag / 1000:.0f}k"
    assert "records, up to 39 s behind" in page.text("#lag-time")
    details = page.text("#details")
    for told in (
        "scorer-orders-scorer-5b0f6a0e",
        "session 45 s",
        "1..16",
        "workers were added 4 s ago",
        "640 calls, 700 keys, 2 parked",
        "by offset 125065, key #5f0c2e7b",
    ):
        assert told in details


def test_each_partition_has_its_offsets_lag_state_and_reason(page, served):
    opened(page, served)
    sample = sample_status().partitions
    table = {row[0]: row for row in rows(page)}
    assert len(table) == len(sample)
    for p in sample:
        row = table[f"{p.topic}-{p.partition}"]
        numbers = [NOT_KNOWN if n is None else f"{n:,}" for n in (p.lag, p.position, p.committed, p.end)]
        assert [row[2], *row[4:7]] == numbers
        assert row[7] == (p.worker or NOT_KNOWN)
    assert table["orders-5"][1] == "blocked"
    assert table["orders-5"][9].startswith("broker 2: connection refused")
    assert table["orders-9"][9] == "buffer full (records come faster than the worker's function takes them)"
    assert table["orders-13"][1] == "no worker"
    assert table["orders.returns-11"][1] == "draining"
    assert table["orders-4"][1] == "at end"


def test_the_timeline_has_what_happened_newest_first(page, served):
    late = TimelineEntry(number=13, at_s=0.0, kind="rebalance", text="told late, by another actor")

    def with_late(sample: JobStatus) -> JobStatus:
        came = msgspec.structs.replace(late, at_s=sample.timeline[3].at_s - 1)
        return msgspec.structs.replace(sample, timeline=[*sample.timeline, came])

    served.status = changed(with_late)
    opened(page, served)
    told = page.run("[...document.querySelectorAll('#entries li')].map((item) => item.lastChild.textContent)")
    texts = [entry.text for entry in sample_status().timeline]
    assert told == [*texts[:3], late.text, *texts[3:]][::-1]
    kinds = page.run("[...document.querySelectorAll('#entries .badge')].map((item) => item.textContent)")
    assert kinds[:3] == ["forced", "drain", "move"]
    assert page.run("document.querySelectorAll('#lanes .happened').length") == len(told)


def test_the_map_joins_brokers_connections_workers_and_partitions(page, served):
    opened(page, served)
    sample = sample_status()
    connections = [actor for actor in sample.others if actor.broker is not None]
    for selector, number in {
        "#brokers .box": len({c.broker for c in connections}),
        "#connections .box": len(connections),
        "#worker-rows .box": len(sample.workers) + 1,  # and one place for the partition that no worker has
        "#worker-rows .cell": len(sample.partitions),
    }.items():
        assert page.run(f"document.querySelectorAll('{selector}').length") == number, selector
    page.hover("#worker-rows .box")
    page.wait("document.querySelector('#chart').classList.contains('tracing')")
    lit = "[...document.querySelectorAll('{} .lit')].map((node) => node.dataset.key)"
    worker = page.run(lit.format("#worker-rows .worker-row:first-of-type"))[0]
    name = worker.removeprefix("w:")
    held = [p for p in sample.partitions if p.worker == name]
    assert set(page.run(lit.format("#brokers"))) == {f"b:{p.leader}" for p in held}
    node = next(w.node for w in sample.workers if w.name == name)
    assert node is not None
    reached = {c.name for c in connections if c.node == node and c.broker in {p.leader for p in held}}
    assert set(page.run(lit.format("#connections"))) == {f"c:{name}@{node[:8]}" for name in reached}
    cells = page.run("[...document.querySelectorAll('.cell.lit')].map((cell) => cell.dataset.key)")
    assert len(cells) == len(held)
    assert name in page.text("#tip")


def test_a_partition_is_told_in_full_when_it_is_chosen_and_closed_with_escape(page, served):
    opened(page, served)
    page.run("document.querySelector('[data-key=\"p:3:orders.returns\"]').id = 'wanted'")
    page.click("#wanted")
    page.wait("document.querySelector('#chosen').checkVisibility()")
    assert page.text("#chosen-name") == "orders.returns-3: blocked"
    told = page.text("#chosen-pairs")
    assert "retrying: offset 120031, ValueError" in told
    assert "the function failed on records of it and is called again" in told
    page.press("Escape")
    page.wait("!document.querySelector('#chosen').checkVisibility()")


def test_plots_have_gaps_where_nothing_was_measured(page, served):
    def with_gaps(points: list[PlotPoint]) -> list[PlotPoint]:
        """One where a single value isn't known, and one where points are missing, beside the one that the sample has."""
        known = [
            msgspec.structs.replace(point, records_per_s=None) if point.number == 500 else point
            for point in points
        ]
        return [point for point in known if not 700 <= point.number < 705]

    served.points = with_gaps
    opened(page, served)
    lines = page.run("[...document.querySelectorAll('.plot .line')].map((line) => line.getAttribute('d'))")
    assert [line.count("M") for line in lines] == [4, 3, 3, 3, 3, 3]


def test_plots_tell_the_values_of_the_moment_that_is_pointed_at(page, served):
    opened(page, served)
    page.hover(".plot svg", at=0.5)
    page.wait("document.querySelectorAll('.plot .cursor').length === 5")
    said = page.run("[...document.querySelectorAll('.plot .readout')].map((node) => node.textContent)")
    moments = {text.split()[0] for text in said}
    assert len(moments) == 1, "one cursor for all plots"
    assert "p50" in said[-1]
    assert "p99" in said[-1]


def test_only_the_last_minute_is_shown_when_that_is_asked_for(page, served):
    opened(page, served)
    length = "document.querySelector('.plot .line').getAttribute('d').split('L').length"
    page.wait(f"{length} > 800")
    choice(page, "#ranges", "1 min")
    page.wait(f"{length} < 70")


def test_a_job_that_is_not_ready_says_why(page, served):
    why = Health(live=True, ready=False, reason="the coordinator has not answered for 4 s")
    served.status = changed(lambda sample: msgspec.structs.replace(sample, health=why))
    opened(page, served)
    assert page.text("#ready") == "not ready"
    assert page.text("#not-ready") == "Not ready: the coordinator has not answered for 4 s"
    assert page.visible("#not-ready")


def test_what_nobody_knows_is_a_dash(page, served):
    def ignorant(sample: JobStatus) -> JobStatus:
        nothing = dict.fromkeys(("records_per_s", "value_bytes_per_s", "lag", "lag_s"))
        late = {"latency_p50_ms": None, "latency_p99_ms": None}
        return msgspec.structs.replace(
            sample,
            totals=msgspec.structs.replace(sample.totals, **nothing, **late),
            group=None,
            scaling=msgspec.structs.replace(sample.scaling, autoscale=None, busy=None),
            others=[],
            workers=[],
            partitions=[],
            timeline=[],
        )

    served.status = changed(ignorant)
    page.open(served.url)
    page.wait("document.querySelector('#job-state').textContent === 'running'")
    assert [page.text(f"#{name}") for name in ("records-rate", "bytes-rate", "lag", "latency")] == [
        NOT_KNOWN
    ] * 4
    assert page.text("#found") == "0 partitions"
    assert page.complaints() == []


# ---------------------------------------------------------------- how it is used


def test_partitions_are_sorted_by_a_column_and_back(page, served):
    opened(page, served)
    sort_by(page, "lag")
    lags = [int(text.replace(",", "")) for text in column(page, 2) if text != NOT_KNOWN]
    assert lags == sorted(lags, reverse=True)
    assert column(page, 2)[-1] == NOT_KNOWN, "what isn't known stands last"
    sort_by(page, "lag")
    lags = [int(text.replace(",", "")) for text in column(page, 2) if text != NOT_KNOWN]
    assert lags == sorted(lags)
    assert column(page, 2)[-1] == NOT_KNOWN
    assert page.run("document.querySelector('th.c-lag').getAttribute('aria-sort')") == "ascending"
    sort_by(page, "worker")
    workers = [text for text in column(page, 7) if text != NOT_KNOWN]
    assert workers == sorted(workers)


def test_partitions_are_found_by_words_and_by_state(page, served):
    opened(page, served)
    page.click("#find")
    page.write("returns worker-3")
    page.wait("document.querySelector('#found').textContent.includes(' of ')")
    expected = [p for p in sample_status().partitions if "returns" in p.topic and p.worker == "worker-3.1"]
    assert len(rows(page)) == len(expected) > 0
    assert page.text("#found") == f"{len(expected)} of 24 partitions"
    page.run("document.querySelector('#find').value = ''")
    choice(page, "#conditions", "No worker")
    assert column(page, 0) == ["orders-13"]
    choice(page, "#conditions", "Blocked")
    assert set(column(page, 0)) >= {"orders.returns-3", "orders-5", "orders.returns-7", "orders-9"}
    choice(page, "#conditions", "All")
    assert len(rows(page)) == 24


def test_a_keyboard_is_enough(page, served):
    opened(page, served)
    focused = "document.activeElement.getAttribute('role')"
    for _ in range(20):
        page.press("Tab")
        if page.run(focused) == "slider":
            break
    assert page.run(focused) == "slider"
    value = "document.activeElement.getAttribute('aria-valuetext')"
    page.press("Home")
    first = page.wait(value)
    page.press("ArrowRight")
    page.wait(f"{value} !== {json.dumps(first)}")
    page.run("document.querySelector('th.c-lag button').focus()")
    page.press("Enter")
    page.wait("document.querySelector('th.c-lag').getAttribute('aria-sort') === 'descending'")
    page.run("document.querySelector('#worker-rows .box').focus()")
    page.press("Enter")
    page.wait("document.querySelector('#worker-rows .box').getAttribute('aria-pressed') === 'true'")


def test_a_thousand_partitions_stay_readable(page, served):
    served.status = lambda at_s: sample_status(1_000, 40, at_s=at_s)
    opened(page, served)
    assert page.text("#found") == "1,000 partitions"
    assert page.run("document.querySelectorAll('#worker-rows .cell').length") == 1_000
    there = page.run("document.querySelectorAll('#rows tr').length")
    assert there < 100, "only what can be seen is there"
    page.run("document.querySelector('#scroll').scrollTop = 1e9")
    page.wait(
        "[...document.querySelectorAll('#rows button')].some((node) => node.textContent === 'orders.returns-999')"
    )
    sort_by(page, "position")
    page.wait("document.querySelector('#rows tr:not(.space) button').textContent === 'orders.returns-999'")
    page.click("#find")
    page.write("orders-500")
    page.wait("document.querySelector('#found').textContent === '1 of 1,000 partitions'")
    assert page.complaints() == []


# ---------------------------------------------------------------- foreign texts, and what is asked of whom


def test_hostile_names_are_text(page, served):
    def hostile(sample: JobStatus) -> JobStatus:
        first = msgspec.structs.replace(sample.partitions[0], topic=HOSTILE, reason=f"broker 1: {HOSTILE}")
        entry = msgspec.structs.replace(sample.timeline[-1], text=HOSTILE, kind=HOSTILE)
        worker = msgspec.structs.replace(sample.workers[0], name=HOSTILE)
        return msgspec.structs.replace(
            sample,
            name=HOSTILE,
            group_id=HOSTILE,
            topics=[HOSTILE],
            partitions=[first, *sample.partitions[1:]],
            timeline=[*sample.timeline[:-1], entry],
            workers=[worker, *sample.workers[1:]],
            health=Health(live=True, ready=False, reason=HOSTILE),
        )

    served.status = changed(hostile)
    opened(page, served)
    assert page.text("#job-name") == HOSTILE
    assert HOSTILE in page.text("#not-ready")
    assert any(HOSTILE in row[0] for row in rows(page))
    assert HOSTILE in page.text("#entries li")
    page.hover("#worker-rows .cell")
    page.wait("document.querySelector('#tip').checkVisibility()")
    page.click("#worker-rows .cell")
    assert page.run("document.querySelectorAll('img').length") == 0
    page.wait(f"document.title.startsWith({json.dumps(HOSTILE)})")
    assert page.complaints() == []
    assert page.run("document.scrollingElement.scrollWidth <= document.scrollingElement.clientWidth")


def test_nothing_is_complained_of_and_nobody_else_is_asked(page, served):
    opened(page, served)
    page.wait(
        "performance.getEntriesByType('resource').filter((each) => each.name.includes('history')).length > 2"
    )
    page.hover(".plot svg")
    page.hover("#lanes .happened")
    page.click("#brokers .box")
    sort_by(page, "reason")
    assert page.complaints() == []
    asked = [url for url in page.requests() if not url.startswith(("data:", "about:"))]
    assert all(url.startswith(served.url) for url in asked), asked
    assert "?after=" in asked[-1] + asked[-2], "only what is new is asked for"


def test_the_policy_lets_no_other_script_run(page, served):
    opened(page, served)
    page.run(
        "(() => { const node = document.createElement('script');"
        " node.textContent = \"document.title = 'taken'\"; document.body.append(node); })()"
    )
    assert page.run("document.title") != "taken"
    assert any("Content Security Policy" in told for told in page.complaints())


# ---------------------------------------------------------------- when nothing comes


def test_numbers_are_called_stale_while_the_server_is_away(page, served):
    opened(page, served)
    page.wait(FRESH)
    served.stop()
    page.wait("document.querySelector('#stale').checkVisibility()")
    assert page.text("#stale-text").startswith("No answer from the job since ")
    # A page that is slow is stale before it has asked again.
    page.wait("document.querySelector('#stale-text').textContent.includes(\"the server can't be reached\")")
    assert page.run("document.title") == "stale: orders-scorer"
    assert page.text("#records-rate") == "212k/s", "what was known last stays"
    served.start("127.0.0.1", served.port)
    page.wait(FRESH)


def test_points_of_another_process_take_the_place_of_those_before(page, served):
    opened(page, served)
    assert served.after[0] == 0
    begun = len(served.after)  # before: the page may have asked for all of them by the next line
    served.restart_job()
    until(lambda: 0 in served.after[begun:], 20, "a request for all points", shown=lambda: served.after)
    page.wait("document.querySelector('.plot .line').getAttribute('d').length > 1000")


def test_a_job_with_nothing_new_to_say_is_called_so(page, served):
    at_s = time.time()
    served.status = lambda _: sample_status(at_s=at_s)
    opened(page, served)
    said = (
        "document.querySelector('#stale-text').textContent.startsWith('The job has said nothing new since ')"
    )
    page.wait(f"document.querySelector('#stale').checkVisibility() && {said}")


def test_a_page_that_nobody_sees_asks_nothing(page, served):
    opened(page, served)
    hide = "Object.defineProperty(document, 'hidden', {{ configurable: true, get: () => {} }})"
    page.wait(
        f"{FRESH} && (() => {{ {hide.format('true')}; return document.dispatchEvent(new Event('visibilitychange')) }})()"
    )
    known, since = len(served.asked), time.monotonic()

    def nothing_more():
        """Whether two and a half seconds have passed since the last request: what was under way still comes."""
        nonlocal known, since
        if len(served.asked) != known:
            known, since = len(served.asked), time.monotonic()
        return time.monotonic() - since > 2.5

    until(nothing_more, 20, "the end of requests", shown=lambda: served.asked[-9:])
    assert not page.visible("#stale")
    page.run(f"{hide.format('false')}; document.dispatchEvent(new Event('visibilitychange'))")
    until(lambda: len(served.asked) > known, 20, "a request")


# ---------------------------------------------------------------- a real job


@pytest.mark.ray
def test_the_page_of_a_job_that_runs_follows_it(browser, scene_3, pictures):
    scene = scene_3
    running = scene.start(workers=2, status_address="127.0.0.1:0")
    scene.under_load()
    scene.spread(2)
    scene.flowing()
    with browser.page() as page:
        page.open(running.status().page)
        page.wait("document.querySelector('#ready')?.textContent === 'ready'")
        page.wait("/^[1-9]/.test(document.querySelector('#records-rate').textContent)")
        page.wait("document.querySelector('#latency').textContent.endsWith('s')")
        page.wait("document.querySelectorAll('#worker-rows .cell').length === 12")
        assert {row[0] for row in rows(page)} == {f"{scene.topic}-{number}" for number in range(12)}
        assert set(column(page, 7)) == set(running.status().actors) & set(scene.pids("worker"))
        assert page.run("document.querySelectorAll('.links path').length") > 3
        scene.kill("worker-1.1")
        restarted = "[...document.querySelectorAll('#entries li')].some((item) => item.textContent.includes('restart'))"
        page.wait(restarted, 60)
        page.wait("document.querySelector('#restarts').textContent === '1'")
        page.wait(
            "[...document.querySelectorAll('#worker-rows .title')].some((node) => node.textContent === 'worker-1.2')"
        )
        page.wait("document.querySelector('#ready').textContent === 'ready'")
        scene.flowing()
        page.screenshot(pictures / "job.png")
        assert page.complaints() == []
        scene.settle()
        page.wait("document.querySelector('#stale').checkVisibility()")


# ---------------------------------------------------------------- looks

_OVERFLOWING = """
[...document.querySelectorAll('body *')].filter((node) => {
  if (node.closest('.scroll, .skip, svg') || !node.checkVisibility()) return false;
  return node.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5;
}).map((node) => `${node.tagName}.${node.className}#${node.id}`)
"""

# WCAG 2: text against what lies behind it. Colours with an alpha are laid over what is behind; gradients are left out.
_POOR = """
(() => {
  const parse = (text) => {
    const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
    return { r, g, b, a };
  };
  const over = (top, below) => {
    const mix = (name) => top[name] * top.a + below[name] * (1 - top.a);
    return { r: mix('r'), g: mix('g'), b: mix('b'), a: 1 };
  };
  const behind = (node) => {
    if (!node) return { r: 255, g: 255, b: 255, a: 1 };
    const colour = parse(getComputedStyle(node).backgroundColor);
    return colour.a === 1 ? colour : over(colour, behind(node.parentElement));
  };
  const light = ({ r, g, b }) => {
    const [x, y, z] = [r, g, b].map((part) => part / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const poor = [];
  for (const node of document.querySelectorAll('body *')) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || !node.checkVisibility() || node.closest('noscript') || getComputedStyle(node).backgroundImage !== 'none') continue;
    const style = getComputedStyle(node);
    const ground = behind(node instanceof SVGElement ? node.closest('section') : node);
    const text = over(parse(node instanceof SVGElement ? style.fill : style.color), ground);
    const [high, low] = [light(text), light(ground)].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) poor.push(`${node.tagName}.${node.getAttribute('class')} ${ratio.toFixed(2)}: ${node.textContent.slice(0, 30)}`);
  }
  return poor;
})()
"""


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Directory for screenshots: `STATUS_PICTURES` of the environment, for those who want to look at them."""
    directory = Path(os.environ.get("STATUS_PICTURES", tmp_path))
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_it_fits_small_and_large_screens_and_is_readable(browser, served, size, scheme, pictures):
    width, height = SIZES[size]
    with browser.page(width, height, dark=scheme == "dark") as page:
        opened(page, served)
        ground = page.run("getComputedStyle(document.body).backgroundColor")
        assert (sum(_parts(ground)) < 200) == (scheme == "dark")
        wide = page.run("[document.scrollingElement.scrollWidth, document.scrollingElement.clientWidth]")
        assert wide[0] <= wide[1]
        assert page.run(_OVERFLOWING) == []
        assert page.run(_POOR) == []
        file = pictures / f"{size}-{scheme}.png"
        page.screenshot(file)
        assert file.read_bytes().startswith(b"\x89PNG")


def test_a_page_without_motion_for_who_wants_none(page, served):
    features = [{"name": "prefers-reduced-motion", "value": "reduce"}]
    page.call("Emulation.setEmulatedMedia", features=features)
    opened(page, served)
    assert _moving(page) == []
    page.call("Emulation.setEmulatedMedia", features=[{**features[0], "value": "no-preference"}])
    assert _moving(page) != [], "the question must be able to find something"


def _moving(page: Page) -> Any:
    return page.run(
        "[...document.querySelectorAll('*')].filter((node) => { const style = getComputedStyle(node);"
        " return style.animationName !== 'none' || style.transitionDuration !== '0s'; }).map((node) => node.className)"
    )


def _parts(colour: str) -> list[float]:
    return [float(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
