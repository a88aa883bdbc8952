"""Paths and their answers. The page is one text, under a policy that lets its own style and script run and nothing else."""

import base64
import hashlib
import json
import re
from importlib import resources

import pytest
from fakes.statuses import job, partition, worker

from kafka_actors.job.machines.health import LOOKS_S, UNANSWERED_S, LastSeen
from kafka_actors.job.status import JobStatus, JobTotals
from kafka_actors.status_page.machines.history import History
from kafka_actors.status_page.machines.http import BadRequest, HttpRequest
from kafka_actors.status_page.site import Site, composed, page

STYLES = '<link rel="stylesheet" href="one.css">\n<link rel="stylesheet" href="two.css">'
SCRIPTS = '<script src="one.js"></script>\n<script src="two.js"></script>'
HTML = f'<html><head><link rel="icon" href="data:,">\n{STYLES}</head><body>{SCRIPTS}</body></html>'
TEXTS = {"one.css": "b{}\n", "two.css": "i{}\n", "one.js": "let x = 'ä';\n", "two.js": "say(x);\n"}


def digest(text):
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_styles_and_scripts_are_in_the_page_and_in_its_policy():
    made = composed(HTML, TEXTS.__getitem__)
    style = "/* one.css */\nb{}\n\n/* two.css */\ni{}\n"
    script = "(() => {\n// one.js\nlet x = 'ä';\n\n// two.js\nsay(x);\n\n})();\n"
    assert made.html.decode() == (
        f'<html><head><link rel="icon" href="data:,">\n<style>{style}</style></head>'
        f"<body><script>{script}</script></body></html>"
    )
    assert f"script-src 'sha256-{digest(script)}';" in made.policy
    assert f"style-src 'sha256-{digest(style)}';" in made.policy
    assert "unsafe" not in made.policy
    assert "default-src 'none'" in made.policy


@pytest.mark.parametrize(("tags", "comment"), [(STYLES, "/* {}.css */"), (SCRIPTS, "// {}.js")])
def test_files_are_joined_in_the_order_of_their_tags(tags, comment):
    turned = "\n".join(reversed(tags.split("\n")))
    made = composed(HTML.replace(tags, turned), TEXTS.__getitem__).html.decode()
    assert made.index(comment.format("two")) < made.index(comment.format("one"))


@pytest.mark.parametrize(
    ("html", "changed"),
    [
        (HTML.replace(STYLES, ""), {}),
        (HTML.replace(SCRIPTS, ""), {}),
        (HTML + '<script src="three.js"></script>', {}),
        (HTML + '<link rel="stylesheet" href="three.css">', {}),
        (HTML.replace("two.js", "one.js"), {}),
        (HTML.replace("two.css", "one.css"), {}),
        (HTML.replace("two.js", "../two.js"), {}),
        (HTML.replace("two.css", "../two.css"), {}),
        (HTML, {"one.css": "a{}</STYLE>"}),
        (HTML, {"one.js": "'</script>'"}),
        (HTML, {"one.js": "// <!-- x"}),
    ],
)
def test_what_would_not_be_the_page_that_was_written_is_refused(html, changed):
    texts = {**TEXTS, "three.js": "", "three.css": "", **changed}
    with pytest.raises(ValueError, match=r"^(page\.html has|one\.css may|one\.js may)"):
        composed(html, texts.__getitem__)


@pytest.mark.parametrize(("ending", "comment"), [("css", r"/\* (\S+\.css) \*/$"), ("js", r"^// (\S+\.js)$")])
def test_every_file_of_the_package_is_in_the_page(ending, comment):
    files = resources.files("kafka_actors.status_page") / "assets"
    there = {file.name for file in files.iterdir() if file.name.endswith(f".{ending}")}
    assert f"page.{ending}" in there
    assert set(re.findall(comment, page().html.decode(), re.M)) == there


def test_the_page_of_the_package_asks_nobody_else_for_anything():
    text = page().html.decode()
    assert text.lower().startswith("<!doctype html>")
    assert text.count("<script") == 1
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", text)
    assert "@import" not in text
    assert not re.findall(r"url\(\s*(?!['\"]?(?:data:|#))", text)
    assert not re.findall(r"<[a-z]+[^>]* (?:style|on[a-z]+)=", text.split("<script>")[0]), (
        "the policy forbids them"
    )


class Stage:
    """A site whose clocks are the test's."""

    def __init__(self, metrics=lambda accept: (b"up 1\n", "text/plain")):
        self.now = 100.0
        self.site = Site("run-1", metrics=metrics, clock=lambda: self.now)
        self.records = 0

    def look(self, *, answered_at=None, **changed):
        self.records += 100
        answered_at = self.now if answered_at is None else answered_at
        status = job(
            worker("worker-0.1", self.records),
            partitions=[partition(0)],
            at_s=self.now + 1_000,
            answered_s=answered_at + 1_000,
            totals=JobTotals(lag=5),
            **changed,
        )
        seen = LastSeen(
            looked_at=self.now,
            state=status.state,
            coordinator=True,
            answered_at=answered_at,
            member="stable",
            heartbeat_age_s=1.0,
            session_timeout_s=45.0,
            workers_ready=1,
        )
        self.site.look(status, seen)

    def get(self, path, **query):
        return self.site.answer(HttpRequest("GET", path, query, "localhost", {"accept": "x/y"}))

    def text(self, path):
        answer = self.get(path)
        return answer.status, answer.body.decode().strip()

    def status(self):
        return json.loads(self.get("/status.json").body)

    def history(self, **query):
        return json.loads(self.get("/history.json", **query).body)


def test_before_the_first_look_there_is_no_status_and_the_job_is_not_ready():
    stage = Stage()
    assert stage.text("/status.json") == (503, "the job is about to start")
    assert stage.text("/readyz") == (503, "the job is starting")
    assert stage.text("/healthz") == (200, "live")
    assert stage.history()["points"] == []


def test_the_status_is_that_of_the_last_look():
    stage = Stage()
    stage.look()
    stage.now += 1
    stage.look()
    status = stage.status()
    assert set(status) == set(JobStatus.__struct_fields__)
    assert (status["at_s"], status["records"], status["answered_s"]) == (1_101.0, 200, 1_101.0)
    assert stage.get("/status.json").content_type == "application/json"


def test_the_verdict_in_the_status_is_that_of_the_moment():
    stage = Stage()
    stage.look()
    assert stage.status()["health"] == {"live": True, "ready": True, "reason": ""}
    stage.now += LOOKS_S + 1
    assert stage.status()["health"]["live"] is False
    assert stage.text("/healthz") == (503, "the supervisor has not looked at its job for 11 s")
    assert stage.text("/readyz")[0] == 503


def test_a_coordinator_that_freezes_makes_it_unready_and_its_answer_ready_again():
    stage = Stage()
    stage.look()
    answered = stage.now
    for _ in range(5):
        stage.now += 1
        stage.look(answered_at=answered)
    assert stage.now - answered > UNANSWERED_S
    assert stage.text("/readyz") == (503, "the coordinator has not answered for 5 s (limit 3 s)")
    assert stage.text("/healthz") == (200, "live")
    stage.now += 1
    stage.look()
    assert stage.text("/readyz") == (200, "ready")
    points = stage.history()["points"]
    assert [p["lag"] for p in points] == [5, None, None, None, None, None, 5]


def test_history_is_read_from_a_number_on():
    stage = Stage()
    for _ in range(4):
        stage.look()
        stage.now += 1
    whole = stage.history()
    assert set(whole) == set(History.__struct_fields__)
    assert (whole["run"], whole["last"], len(whole["points"])) == ("run-1", 4, 4)
    assert [p["number"] for p in stage.history(after="2")["points"]] == [3, 4]
    assert [p["number"] for p in stage.history(after="99")["points"]] == [1, 2, 3, 4]


@pytest.mark.parametrize("after", ["x", "-1", "1.5", "٣", "9" * 30])
def test_a_number_that_is_none_is_refused(after):
    with pytest.raises(BadRequest, match="after: give the number"):
        Stage().get("/history.json", after=after)


def test_metrics_are_those_of_the_process_in_the_form_that_is_asked_for():
    asked = []
    answer = Stage(lambda accept: asked.append(accept) or (b"up 1\n", "text/z")).get("/metrics")
    assert (answer.status, answer.body, answer.content_type, asked) == (200, b"up 1\n", "text/z", ["x/y"])


def test_without_metrics_it_is_said_why():
    stage = Stage(lambda accept: "not installed: pip install 'kafka-actors[telemetry]'")
    assert stage.text("/metrics") == (501, "not installed: pip install 'kafka-actors[telemetry]'")


def test_another_path_is_told_what_there_is():
    assert Stage().text("/status") == (
        404,
        "no such path: there are /, /status.json, /history.json, /metrics, /healthz, /readyz",
    )
