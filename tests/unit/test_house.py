"""Limits of the house that only fall: each number is the present one, and a test fails when it is another.

Where there is more than the limit, the new thing is to be changed, not the limit. Where there is less, the limit comes down with
it, in the same commit. `python tests/unit/test_house.py` lists all that is counted, with file and line; with `--set` it writes
the present numbers into this file.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HERE = "tests/unit/test_house.py"

LIMITS = {
    "class names twice": 0,
    "docstring openings": 0,
    "files": 556,
    "metaphors": 0,
    "modules without a test file": 0,
    "numbered tests": 0,
    "short files": 26,
}
LONG_FILES = {
    "kafka_actors/errors.py": 858,
}
"""Files of more lines than `MOST_LINES`."""
LONG_CLASSES = {}
"""Classes of more lines than `MOST_CLASS_LINES`."""
MOST_LINES = 400
MOST_CLASS_LINES = 350
FEWEST_LINES = 40

PUBLIC_IN_TWO = {"GroupDescription", "Message", "OffsetReset"}
"""Public names of two packages: of `admin` and `testing`, of the consumer and of `protocol`, of `events` and `admin`."""
SAME_NAMES_ALLOWED = ("kafka_actors/reference/", "kafka_actors/protocol/messages/", "assignors/")
"""Names of others: of the reference pages, of Kafka's message definitions, and those of a package that stands alone."""
NO_TEST_FILE = ("kafka_actors/protocol/messages/",)
"""Declarations: the tests of the codec and those against Java's classes go through all of them."""

OPENINGS = ("What", "As", "Of", "The same", "Those", "Who", "How", "Where", "Which", "That", "It", "They")
_OPENING = re.compile(rf'^[ \t]*r?"""({"|".join(OPENINGS)})\b.*$', re.MULTILINE)
_CLASS = re.compile(r"^class (\w+)", re.MULTILINE)
_OUTER = re.compile(r"^[^\s#)\]}]", re.MULTILINE)
_NUMBERED = re.compile(r"^[ \t]*(?:async )?def (test_\w*?(?:theme_\d+|trap_\d+)\w*)", re.MULTILINE)


METAPHORS = "asked|beginnings?|bench|briefing|doorkeeper|door|face|garbage|given|hosting|keeping|letters|seat|standing|telling|whole"
"""Words that names had in place of the field's (see docs/development/glossary.md): a name says what a thing is or holds."""
FIELD_NAMES = re.compile(r"dead_?letters?|beginning_offsets|seek_to_beginning", re.IGNORECASE)
"""Names of the field that have one of these words: dead letters, and two methods of other clients' consumers."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_METAPHOR = re.compile(METAPHORS, re.IGNORECASE)
_NAMES = re.compile(
    r"^ *(?:class|(?:async )?def) (?P<name>\w+)(?P<arguments>\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))?|\blambda (?P<lambda>[^:\n]*:)",
    re.MULTILINE,
)
_ARGUMENT = re.compile(r"(\w+) *[:=,)]")


@cache
def texts(folder: str) -> dict[str, str]:
    """The Python files below a folder, by their paths from the root."""
    return {str(path.relative_to(ROOT)): path.read_text() for path in sorted((ROOT / folder).rglob("*.py"))}


def places(pattern: re.Pattern[str], folder: str) -> list[str]:
    """`path:line text` of each match."""
    return [
        f"{path}:{text.count(chr(10), 0, found.start()) + 1} {found[0].strip()}"
        for path, text in texts(folder).items()
        for found in pattern.finditer(text)
    ]


def length(text: str) -> int:
    return len(text.splitlines())


# ---------------------------------------------------------------- what is counted


def class_names_twice() -> list[str]:
    """Classes at module level with a name that another one has, without the first of each name."""
    homes: dict[str, list[str]] = defaultdict(list)
    for path, text in {**texts("kafka_actors"), **texts("assignors")}.items():
        if not path.startswith(SAME_NAMES_ALLOWED):
            for name in set(_CLASS.findall(text)) - PUBLIC_IN_TWO:
                homes[name].append(path)
    return [f"{name}: {path}, as {home}" for name, (home, *more) in sorted(homes.items()) for path in more]


def docstring_openings() -> list[str]:
    """Docstrings, also of attributes, that open with one of the words."""
    return places(_OPENING, "kafka_actors")


def short_files() -> list[str]:
    return [
        f"{path} {length(text)}"
        for path, text in texts("kafka_actors").items()
        if length(text) < FEWEST_LINES and not path.endswith("/__init__.py")
    ]


def files() -> list[str]:
    return list(texts("kafka_actors"))


def modules_without_a_test_file() -> list[str]:
    there = set(texts("tests"))
    return [
        path
        for path in texts("kafka_actors")
        if not path.startswith(NO_TEST_FILE)
        and not path.endswith("/__init__.py")
        and there.isdisjoint(files_that_test(path))
    ]


def files_that_test(path: str) -> Iterator[str]:
    """The files that are a module's test file: of `kafka_actors/net/machines/nodes.py` these are

    tests/unit/net/machines/test_nodes.py, tests/unit/net/test_nodes.py, tests/unit/test_nodes.py
    tests/property/test_nodes.py, tests/property/test_net_nodes.py, and the same in tests/integration
    """
    *folders, name = path.removeprefix("kafka_actors/").removesuffix(".py").split("/")
    name = name.lstrip("_")
    for count in range(len(folders), -1, -1):
        yield "/".join(["tests/unit", *folders[:count], f"test_{name}.py"])
    for kind in ("property", "integration"):
        yield f"tests/{kind}/test_{name}.py"
        if folders:
            yield f"tests/{kind}/test_{folders[0]}_{name}.py"


def metaphors() -> list[str]:
    """Modules, classes, functions and arguments with such a word in their names. Names of tests are sentences, and may have all."""
    found = []
    for path, text in {**texts("kafka_actors"), **texts("assignors"), **texts("tests")}.items():
        if path == HERE:  # it has examples
            continue
        found += [path] if is_metaphor(Path(path).stem) else []
        found += [f"{path}:{line} {name}" for line, name in metaphors_in(text)]
    return found


def metaphors_in(text: str) -> Iterator[tuple[int, str]]:
    """Line and name of each class, function and argument that has one of the words."""
    for found in _NAMES.finditer(text):
        if not _METAPHOR.search(found[0]):
            continue
        kind, arguments = found["name"] or "", found["arguments"] or found["lambda"] or ""
        for name in [*([] if kind.startswith("test_") else [kind]), *_ARGUMENT.findall(arguments)]:
            if is_metaphor(name):
                yield text.count("\n", 0, found.start()) + 1, name


def is_metaphor(name: str) -> bool:
    return any(map(_METAPHOR.fullmatch, _WORD.findall(FIELD_NAMES.sub("", name))))


def numbered_tests() -> list[str]:
    return places(_NUMBERED, "tests")


def long_files() -> dict[str, int]:
    found = {path: length(text) for path, text in texts("kafka_actors").items()}
    return {path: lines for path, lines in found.items() if lines > MOST_LINES}


def long_classes() -> dict[str, int]:
    found = {
        match[1]: class_length(text[match.start() :])
        for text in texts("kafka_actors").values()
        for match in _CLASS.finditer(text)
    }
    return {name: lines for name, lines in found.items() if lines > MOST_CLASS_LINES}


def class_length(text: str) -> int:
    """Lines of the class that a text begins with."""
    following = _OUTER.search(text, 1)
    return length((text[: following.start()] if following else text).rstrip())


COUNTED = {
    "class names twice": (class_names_twice, "say in its name how the new class differs from the other one"),
    "docstring openings": (
        docstring_openings,
        f"open the docstring with a noun or a verb, not with {OPENINGS}",
    ),
    "short files": (
        short_files,
        f"put what has fewer than {FEWEST_LINES} lines into the file of the thing that it is part of",
    ),
    "files": (files, "look for the file where the new code belongs, or join two that are one thing"),
    "modules without a test file": (
        modules_without_a_test_file,
        "give the new module a test file of its name (see files_that_test)",
    ),
    "metaphors": (metaphors, "say in the field's words what the thing is: the glossary has them"),
    "numbered tests": (numbered_tests, "say in words what the test shows, not which theme or trap it is of"),
}


# ---------------------------------------------------------------- that it only falls


def problem_of(number: int, limit: int, advice: str) -> str | None:
    """One line that says what is to be done; None where the number is the limit."""
    if number > limit:
        return f"{number}, and the limit is {limit}: {advice}; `python {HERE}` lists them"
    if number < limit:
        return f"{number} now: lower the limit {limit} in {HERE} to {number}"
    return None


def problems_of_lengths(found: dict[str, int], limits: dict[str, int], most: int) -> list[str]:
    """One line for each that is longer or shorter than it is known to be."""
    problems = []
    for name in sorted({*found, *limits}):
        lines, limit = found.get(name, 0), limits.get(name, most)
        if lines > limit:
            problems.append(f"{name} has {lines} lines, and the limit is {limit}: take a part of it out")
        elif not lines:
            problems.append(f"{name} is not above {most} lines: take it off the list in {HERE}")
        elif lines < limit:
            problems.append(f"{name} has {lines} lines now: lower its limit {limit} in {HERE} to {lines}")
    return problems


@pytest.mark.parametrize("name", COUNTED)
def test_a_number_only_falls(name: str) -> None:
    count, advice = COUNTED[name]
    problem = problem_of(len(count()), LIMITS[name], advice)
    if problem is not None:
        pytest.fail(f"{name}: {problem}", pytrace=False)


@pytest.mark.parametrize("kind", ["files", "classes"])
def test_what_is_too_long_only_gets_shorter(kind: str) -> None:
    if kind == "files":
        problems = problems_of_lengths(long_files(), LONG_FILES, MOST_LINES)
    else:
        problems = problems_of_lengths(long_classes(), LONG_CLASSES, MOST_CLASS_LINES)
    if problems:
        pytest.fail("; ".join(problems), pytrace=False)


# ---------------------------------------------------------------- how it is counted


def test_more_and_less_than_a_limit_are_problems_that_say_what_to_do() -> None:
    assert problem_of(5, 5, "") is None
    assert problem_of(6, 5, "rename it") == f"6, and the limit is 5: rename it; `python {HERE}` lists them"
    assert problem_of(4, 5, "rename it") == f"4 now: lower the limit 5 in {HERE} to 4"
    found = {"a": 12, "b": 14, "c": 20, "new": 11}
    assert problems_of_lengths(found, {"a": 12, "b": 15, "c": 19, "gone": 30}, 10) == [
        f"b has 14 lines now: lower its limit 15 in {HERE} to 14",
        "c has 20 lines, and the limit is 19: take a part of it out",
        f"gone is not above 10 lines: take it off the list in {HERE}",
        "new has 11 lines, and the limit is 10: take a part of it out",
    ]


def test_docstrings_are_found_by_their_opening() -> None:
    text = '''\
"""What a module is."""
X = 1
"""Those of an attribute."""
class A:
    """It is said
    here. """
    def f(self):
        """Asks, and Italy is no opening."""
        return """
What isn't one."""
    def g(self):
        r"""The same, raw."""
'''
    assert [found[1] for found in _OPENING.finditer(text)] == ["What", "Those", "It", "The same"]


def test_a_class_ends_where_the_next_thing_begins() -> None:
    text = "class A(\n    B,\n):\n    x = 1\n\n# about f\n\n    y = [\n]\n\n\ndef f(): ...\n\nclass C:\n    pass\n"
    assert [(m[1], class_length(text[m.start() :])) for m in _CLASS.finditer(text)] == [("A", 9), ("C", 2)]


def test_metaphors_are_found_in_names() -> None:
    text = """\
class ADoor:
    def beginning(self, given: dict[str, tuple[()]], *, seat=(), asked_at: int = f(1)) -> face: ...
def test_the_whole(letters): ...
print(f"{(lambda door, x: 0)(0)}, whole, {asked}")
"""
    names = ["ADoor", "beginning", "given", "seat", "asked_at", "letters", "door"]
    assert [name for _, name in metaphors_in(text)] == names
    assert [line for line, _ in metaphors_in(text)] == [1, 2, 2, 2, 2, 3, 4]
    assert not any(
        map(is_metaphor, ["DeadLetters", "dead_letters", "seek_to_beginning", "Interface", "task_deadline"])
    )


def test_numbered_tests_are_found_by_their_names() -> None:
    text = "def test_theme_17_x(): ...\n    async def test_a_trap_6(self): ...\ndef test_a_trapdoor(): ...\n"
    assert _NUMBERED.findall(text) == ["test_theme_17_x", "test_a_trap_6"]


def test_the_files_that_test_a_module() -> None:
    assert list(files_that_test("kafka_actors/net/machines/nodes.py")) == [
        "tests/unit/net/machines/test_nodes.py",
        "tests/unit/net/test_nodes.py",
        "tests/unit/test_nodes.py",
        "tests/property/test_nodes.py",
        "tests/property/test_net_nodes.py",
        "tests/integration/test_nodes.py",
        "tests/integration/test_net_nodes.py",
    ]
    assert "tests/unit/records/test_kernel.py" in files_that_test("kafka_actors/records/_kernel.py")
    assert "tests/unit/test_lazy.py" in files_that_test("kafka_actors/lazy.py")


def with_present_numbers(text: str) -> str:
    """This file with the present numbers as its limits."""

    def table(name: str, values: dict[str, int]) -> None:
        nonlocal text
        lines = "".join(f'    "{key}": {value},\n' for key, value in sorted(values.items()))
        text = re.sub(rf"^{name} = \{{\n.*?^\}}", f"{name} = {{\n{lines}}}", text, count=1, flags=re.M | re.S)

    table("LIMITS", {name: len(count()) for name, (count, _) in COUNTED.items()})
    table("LONG_FILES", long_files())
    table("LONG_CLASSES", long_classes())
    return text


if __name__ == "__main__":
    if sys.argv[1:] == ["--set"]:
        Path(__file__).write_text(with_present_numbers(Path(__file__).read_text()))
    for title, (counted, _) in COUNTED.items():
        listed = counted()
        print(f"{title}: {len(listed)}", *listed, sep="\n  ")
    print("long files and classes:", long_files(), long_classes(), sep="\n  ")
