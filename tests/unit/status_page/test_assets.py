"""The page is one text, under a policy that lets its own style and script run and nothing else."""

import base64
import hashlib
import re
from importlib import resources

import pytest

from kafka_actors.status_page.assets import composed, page

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
