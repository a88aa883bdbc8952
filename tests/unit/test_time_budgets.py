"""The plugins of the tests themselves: budgets of files, the machine's pace, and the groups that share what takes long to start."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from pace import REFERENCE_S, Pace
from time_budgets import BUDGETS, Budgets, FileTime, Ledger, without_group
from xdist_groups import group_tests

SOME = Budgets({"unit": 10.0, "integration": 20.0, "integration/test_dear.py": 60.0})


@pytest.fixture
def pace(tmp_path):
    """Quick until 10, at half the pace until 20."""
    lines = [f"{at} {REFERENCE_S}" for at in range(10)] + [f"{at} {2 * REFERENCE_S}" for at in range(10, 20)]
    file = tmp_path / "pace"
    file.write_text("\n".join(lines) + "\n15.5 0.0")  # the last line is being written
    return Pace(file)


def test_a_file_has_its_own_budget_or_that_of_its_directory():
    assert SOME.of("integration/test_dear.py") == 60
    assert SOME.of("integration/test_other.py") == 20
    assert SOME.of("unit/net/test_nodes.py") == 10
    assert SOME.of("elsewhere/test_x.py") == float("inf")


def test_a_budget_of_a_file_that_is_gone_is_refused(tmp_path):
    file = tmp_path / "budgets.toml"
    file.write_text('[seconds]\n"unit/test_gone.py" = 3\n')
    with pytest.raises(ValueError, match=r"no such files or directories: unit/test_gone\.py"):
        Budgets.read(file)
    assert Budgets.read(BUDGETS).of("unit/test_time_budgets.py") < float("inf")


def test_seconds_of_a_busy_machine_are_fewer_of_a_quiet_one(pace):
    assert pace.between(1.0, 9.0) == 1.0
    assert pace.between(11.0, 19.0) == pytest.approx(2.0)
    assert pace.quiet_s(11.0, 19.0) == pytest.approx(4.0)
    assert pace.between(100.0, 101.0) == 1.0, "nothing was measured"


def test_what_is_written_down_while_it_is_read_is_read_later(pace, tmp_path):
    assert pace.between(0.0, 19.0) < 2
    with (tmp_path / "pace").open("a") as file:
        file.write(f"4\n21 {4 * REFERENCE_S}\n")
    assert pace.between(20.5, 21.0) == pytest.approx(4.0)


@pytest.mark.parametrize(("seconds", "pace", "over"), [(49, 1.0, False), (51, 1.0, True), (98, 2.0, False)])
def test_a_file_is_over_its_budget_by_a_clear_margin_only(seconds, pace, over):
    time = FileTime()
    time.add(seconds, pace)
    assert time.over(20.0) == over


def report(file, seconds, *, shared_s=0.0, **keywords):
    return SimpleNamespace(
        fspath=f"tests/{file}",
        nodeid=f"tests/{file}::test@ray-0",
        duration=seconds,
        keywords=keywords,
        shared_s=shared_s,
        pace=1.0,
    )


def test_a_run_with_a_file_over_its_budget_fails_and_names_it():
    ledger = Ledger(SOME)
    ledger.pytest_runtest_logreport(report("integration/test_a.py", 30, slow=1))
    ledger.pytest_runtest_logreport(report("integration/test_a.py", 60, shared_s=50))
    session = SimpleNamespace(exitstatus=pytest.ExitCode.OK)
    ledger.pytest_sessionfinish(session)
    assert (ledger.over(), session.exitstatus) == ([], pytest.ExitCode.OK)
    ledger.pytest_runtest_logreport(report("integration/test_a.py", 50))
    ledger.pytest_sessionfinish(session)
    assert ledger.over() == ["integration/test_a.py: 60.0 s, budget 20 s, pace 1.0"]
    assert session.exitstatus == pytest.ExitCode.TESTS_FAILED


def test_the_group_is_no_part_of_a_tests_name():
    assert without_group("tests/a.py::test_b@ray-1") == "tests/a.py::test_b"
    assert without_group("tests/a.py::test_b[x@y]") == "tests/a.py::test_b[x@y]"


class Item:
    """A test of `file`, with these fixtures and markers."""

    def __init__(self, file, *fixtures, marker=None):
        self.path = Path(BUDGETS).parent / file
        self.fixturenames, self.marker = fixtures, marker

    def get_closest_marker(self, name):
        return self.marker if self.marker == name else None


def test_tests_that_share_what_takes_long_to_start_are_one_group_and_the_longest_comes_first():
    plain, dear = Item("unit/test_a.py"), Item("integration/test_dear.py", "ray_local")
    other, alone = Item("integration/test_b.py", "ray_local"), Item("integration/test_b.py")
    spark = Item("integration/test_c.py", marker="spark")
    items = [plain, other, alone, spark, dear]
    groups = group_tests(items, SOME)
    assert items[0] is dear
    assert {groups[other], groups[dear]} == {"ray-0", "ray-1"}
    assert (groups[alone], groups[spark], groups[plain]) == (
        "integration/test_b.py",
        "spark",
        "unit/test_a.py",
    )
    assert items == [dear, spark, alone, other, plain], "test_b.py takes 20 s for both of its tests"


def test_tests_of_the_broker_with_tls_are_one_group():
    first, second = Item("integration/test_a.py", "secure"), Item("integration/test_b.py", "secure")
    on_ray = Item("integration/test_b.py", "secure", "ray_local")
    on_spark = Item("integration/test_b.py", "secure", marker="spark")
    groups = group_tests([first, second, on_ray, on_spark], SOME)
    assert [groups[item] for item in (first, second, on_ray, on_spark)] == [
        "secure",
        "secure",
        "ray-0",
        "spark",
    ]


THREE = ("kafka_cluster_3", "_three_brokers")


def test_three_brokers_are_started_in_one_group_with_ray_and_late():
    """As long as they run they cost an eighth of a core."""
    long, short = Item("integration/test_dear.py", *THREE), Item("integration/test_b.py", *THREE, "ray_local")
    others = [Item(f"integration/test_{name}.py", "ray_local") for name in "cdefgh"]
    spark, spark_on_three = (Item("integration/test_i.py", *more, marker="spark") for more in ((), THREE))
    items = [long, spark_on_three, short, *others, spark]
    groups = group_tests(items, SOME)
    assert groups[long] == groups[short] == "ray-1"
    assert {groups[other] for other in others} == {"ray-0", "ray-1"}, "100 s each"
    order = [item for item in items if groups[item] == "ray-1"]
    assert order[-2:] == [long, short]
    assert len(order) == 3
    assert [item for item in items if groups[item] == "spark"] == [spark, spark_on_three]
