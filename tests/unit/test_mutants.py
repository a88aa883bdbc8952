"""The list of mutants (`tests/mutants.toml`) fits the sources, names tests that there are, and leaves no machine out."""

import ast
import re
from pathlib import Path

import pytest
from mutants import KERNEL, ROOT, Mutant, listed, page, promises

MUTANTS = listed()
FEWEST = 80
HELD_TO_KAFKA = "kafka_actors/testing/fake_kafka/"
"""Machines of the fake Kafka: a real broker, asked the same, is what they are held to."""
MACHINES = [
    file
    for path in sorted(ROOT.glob("kafka_actors/**/machines/*.py"))
    if path.name != "__init__.py" and not (file := str(path.relative_to(ROOT))).startswith(HELD_TO_KAFKA)
]


def test_there_are_enough_and_each_has_a_name_of_its_own():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= FEWEST


def test_every_machine_and_the_kernel_have_one():
    files = {mutant.file for mutant in MUTANTS}

    assert [machine for machine in MACHINES if machine not in files] == []
    assert files & set(KERNEL)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_is_taken_out_stands_once_in_its_file(mutant):
    text = (ROOT / mutant.file).read_text()
    changed = mutant.changed(text)

    assert changed != text
    if mutant.file not in KERNEL:
        ast.parse(changed)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_test_that_is_named_is_there(mutant):
    file, name = mutant.test.split("::")

    assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE)


def test_a_text_that_is_gone_or_stands_twice_is_an_error():
    mutant = Mutant("name", "file.py", "if gone:", "if False:", "tests/test_file.py::test_it")

    with pytest.raises(ValueError, match=r"name: what is to be taken out stands 0 times in file\.py"):
        mutant.changed("if here:\n")
    with pytest.raises(ValueError, match="2 times"):
        mutant.changed("if gone:\nif gone:\n")


def test_a_list_has_no_other_keys(tmp_path: Path):
    path = tmp_path / "mutants.toml"
    path.write_text('[[mutant]]\nname = "a"\nfiles = "b"\n')

    with pytest.raises(TypeError, match="files"):
        listed(path)


def test_the_page_on_promises_is_what_the_list_says():
    assert (ROOT / "docs/development/promises.md").read_text() == page(), (
        "python tests/mutants.py --page > docs/development/promises.md"
    )


def test_each_promise_of_the_readme_links_to_its_section_of_that_page():
    readme = (ROOT / "README.md").read_text()
    for number, name in promises():
        anchor = re.sub(r"[^\w\- ]", "", f"{number} {name}".lower()).replace(" ", "-")
        assert f"(docs/development/promises.md#{anchor})" in readme, f"promise {number}: {name}"


def test_every_promise_of_the_readme_has_guards():
    numbers = [number for number, _ in promises()]
    assert numbers == list(range(1, 8)), "no other numbered list of README"
    assert {mutant.promise for mutant in MUTANTS} == {0, *numbers}
