"""The values that the pages show are such as the chart takes."""

from pathlib import Path

import pytest
import yaml
from helm.chart import CHART, VERSIONS, Refused
from helm.matrix import JOB
from pages.blocks import Block, blocks_of, pages

NAMES = yaml.safe_load((CHART / "values.yaml").read_text()).keys()
SHOWN = [
    block
    for page in [*pages(), CHART / "README.md"]
    for block in blocks_of(page)
    if block.language == "yaml" and block.code.partition(":")[0] in NAMES
]


def values(block: Block) -> dict:
    """With a job where it has none of its own."""
    said = yaml.safe_load(block.code)
    return {**said, "job": {**JOB, **said.get("job", {})}}


@pytest.mark.parametrize("block", SHOWN, ids=str)
def test_values_that_a_page_shows_make_what_kubernetes_takes(render, conform, block):
    assert conform(render(values(block)).text, VERSIONS[-1]) == ""


def test_there_are_such_values():
    assert {block.page.name for block in SHOWN} == {"kubernetes.md", "keda.md", "README.md"}
    assert len(SHOWN) >= 5


def test_a_misspelt_value_of_a_page_would_be_found(render):
    wrong = Block(Path("page.md"), 1, "yaml", None, ["kafka: {bootstrapServer: kafka:9092}"])
    with pytest.raises(Refused, match="bootstrapServer"):
        render(values(wrong))
