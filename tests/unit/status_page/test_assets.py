"""The page is one text, under a policy that lets its own style and script run and nothing else."""

import base64
import hashlib
import re
from importlib import resources

import pytest

from kafka_actors.status_page.assets import STYLE, composed, page

SCRIPTS = '<script src="one.js"></script>\n<script src="two.js"></script>'
HTML = f"<html><head>{STYLE}</head><body>{SCRIPTS}</body></html>"
TEXTS = {"one.js": "let x = 'ä';\n", "two.js": "say(x);\n"}


def test_style_and_scripts_are_in_the_page_and_in_its_policy():
    made = composed(HTML, "b{}", TEXTS.__getitem__)
    script = "(() => {\n// one.js\nlet x = 'ä';\n\n// two.js\nsay(x);\n\n})();\n"
    assert (
        made.html.decode()
        == f"<html><head><style>b{{}}</style></head><body><script>{script}</script></body></html>"
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in made.policy
    assert "unsafe" not in made.policy
    assert "default-src 'none'" in made.policy


def test_scripts_are_joined_in_the_order_of_their_tags():
    turned = '<script src="two.js"></script>\n<script src="one.js"></script>'
    made = composed(HTML.replace(SCRIPTS, turned), "", TEXTS.__getitem__).html.decode()
    assert made.index("// two.js") < made.index("// one.js")


@pytest.mark.parametrize(
    ("html", "css", "js"),
    [
        (HTML.replace(STYLE, ""), "", ""),
        (HTML.replace(SCRIPTS, ""), "", ""),
        (HTML + '<script src="three.js"></script>', "", ""),
        (HTML.replace("two.js", "one.js"), "", ""),
        (HTML.replace("two.js", "../two.js"), "", ""),
        (HTML, "a{}</STYLE>", ""),
        (HTML, "", "'</script>'"),
        (HTML, "", "// <!-- x"),
    ],
)
def test_what_would_not_be_the_page_that_was_written_is_refused(html, css, js):
    with pytest.raises(ValueError, match=r"^(page\.html has|page\.css may|one\.js may)"):
        composed(html, css, lambda name: js)


def test_every_script_of_the_package_is_in_the_page():
    files = resources.files("kafka_actors.status_page") / "assets"
    there = {file.name for file in files.iterdir() if file.name.endswith(".js")}
    assert "page.js" in there
    assert set(re.findall(r"^// (\S+\.js)$", page().html.decode(), re.M)) == there


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
