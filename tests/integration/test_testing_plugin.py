"""The pytest plugin, in a pytest of its own: what users get."""

from pathlib import Path

import pytest

TESTS = """
    def test_topic(kafka_topic):
        assert kafka_topic()
"""


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)


def test_without_java_tests_are_skipped_with_the_reason(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_inprocess("-rs", "-p", "no:cacheprovider", "-p", "no:rerunfailures")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*No `java` was found*"])


def test_where_ci_is_set_no_test_skips_real_kafka(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:rerunfailures")
    result.assert_outcomes(failed=1)  # at the first use of the cluster, which is inside the test here
    result.stdout.fnmatch_lines(["*real Kafka can't be skipped while CI is set*No `java` was found*"])
