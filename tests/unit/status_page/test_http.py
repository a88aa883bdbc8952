"""Requests as bytes, and what is sent back."""

import pytest

from kafka_actors.status_page.machines.http import MOST_HEAD, BadRequest, HttpResponse, parse, plain, to_bytes


def head(first="GET / HTTP/1.1", *lines, host="localhost:8000"):
    return "\r\n".join([first, *([f"Host: {host}"] if host is not None else []), *lines, "", ""]).encode(
        "latin-1"
    )


def refused(data, *, only_here=True):
    with pytest.raises(BadRequest) as caught:
        parse(data, only_here=only_here)
    assert "\n" not in str(caught.value)
    return caught.value.status


def test_a_request_has_a_path_a_query_and_headers():
    request = parse(
        head("GET /history.json?after=17&x=&after=3 HTTP/1.1", "Accept:  text/plain; q=1 "), only_here=True
    )
    assert (request.method, request.path, request.query) == ("GET", "/history.json", {"after": "17"})
    assert (request.host, request.headers["accept"]) == ("localhost:8000", "text/plain; q=1")
    assert parse(head("HEAD /a%20b HTTP/1.1"), only_here=True).path == "/a b"


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n",
        b"GET  / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        head("GET / HTTP/1.1", "no header"),
        head("GET / HTTP/1.1", "Sp ace: x"),
        head("GET / HTTP/1.1", "Host: other"),
        head("GET / HTTP/1.1", host=None),
        head("GET http://[x/ HTTP/1.1"),
    ],
    ids=repr,
)
def test_what_is_no_request_is_refused(data):
    assert refused(data) == 400


def test_lines_that_are_too_long_are_refused():
    assert refused(head("GET / HTTP/1.1", "X: " + "x" * MOST_HEAD)) == 431


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"])
def test_nothing_can_be_changed(method):
    assert refused(head(f"{method} / HTTP/1.1")) == 405


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "localhost.", "127.0.0.1:8000", "127.1.2.3", "[::1]:8000", "[::1]"]
)
def test_this_machine_may_be_called_by_any_of_its_names_and_ports(host):
    assert parse(head(host=host), only_here=True).host == host


@pytest.mark.parametrize(
    "host",
    ["evil.example:8000", "localhost.evil.example", "10.0.0.7", "[fe80::1]:8000", "[::1", "", "0.0.0.0"],
)
def test_a_foreign_name_is_refused_where_only_this_machine_is_meant(host):
    assert refused(head(host=host)) == 421
    if host:
        assert parse(head(host=host), only_here=False).host == host


def test_an_old_client_without_a_host_is_no_browser():
    assert parse(head("GET /healthz HTTP/1.0", host=None), only_here=True).host is None


def test_a_response_says_what_it_is_and_that_nobody_keeps_or_frames_it():
    sent = to_bytes(HttpResponse(200, b"{}", "application/json"), "GET")
    lines, body = sent.split(b"\r\n\r\n")
    first, *fields = lines.decode().split("\r\n")
    assert (first, body) == ("HTTP/1.1 200 OK", b"{}")
    headers = dict(field.split(": ", 1) for field in fields)
    assert headers["Content-Type"] == "application/json"
    assert headers["Content-Length"] == "2"
    assert (headers["Cache-Control"], headers["Connection"]) == ("no-store", "close")
    assert (headers["X-Frame-Options"], headers["X-Content-Type-Options"]) == ("DENY", "nosniff")
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")


def test_a_head_gets_the_same_lines_and_no_body():
    response = HttpResponse(200, b"{}", "application/json")
    assert to_bytes(response, "GET") == to_bytes(response, "HEAD") + b"{}"


def test_one_line_and_what_is_allowed():
    assert plain(503, "the job is starting").body == b"the job is starting\n"
    assert b"\r\nAllow: GET, HEAD\r\n" in to_bytes(plain(405, "no"), "POST")
