"""The page is one text, under a policy that lets its own style and script run and nothing else."""

import base64
import hashlib
import re

import pytest

from kafka_actors.status_page.assets import SCRIPT, STYLE, composed, page

HTML = f"<html><head>{STYLE}</head><body>{SCRIPT}</body></html>"


def test_style_and_script_are_in_the_page_and_in_its_policy():
    made = composed(HTML, "b{}", "let x = 'ä'")
    assert (
        made.html.decode()
        == "<html><head><style>b{}</style></head><body><script>let x = 'ä'</script></body></html>"
    )
    digest = base64.b64encode(hashlib.sha256("let x = 'ä'".encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in made.policy
    assert "unsafe" not in made.policy
    assert "default-src 'none'" in made.policy


@pytest.mark.parametrize(
    ("html", "css", "js"),
    [
        (HTML.replace(STYLE, ""), "", ""),
        (HTML + SCRIPT, "", ""),
        (HTML, "a{}</STYLE>", ""),
        (HTML, "", "'</script>'"),
        (HTML, "", "// <!-- x"),
    ],
)
def test_what_would_not_be_the_page_that_was_written_is_refused(html, css, js):
    with pytest.raises(ValueError, match=r"page\.(html|css)"):
        composed(html, css, js)


def test_the_page_of_the_package_asks_nobody_else_for_anything():
    text = page().html.decode()
    assert text.lower().startswith("<!doctype html>")
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", text)
    assert "@import" not in text
    assert not re.findall(r"url\(\s*(?!['\"]?(?:data:|#))", text)
    assert not re.findall(r"<[a-z]+[^>]* (?:style|on[a-z]+)=", text.split("<script>")[0]), (
        "the policy forbids them"
    )
