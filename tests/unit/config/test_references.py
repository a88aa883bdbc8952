"""`${env:…}` and `${file:…}` in options."""

from pathlib import Path

import pytest

from kafka_actors.config.references import resolve
from kafka_actors.errors import ConfigError


def test_each_kind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PASSWORD", "hush}")
    (tmp_path / "all.properties").write_text("user=alice\npass\\ word: s3cret\n")
    (tmp_path / "token").write_text("whole\nfile\r\n")
    assert resolve("o", "${env:PASSWORD}") == "hush}"
    assert resolve("o", f"${{file:{tmp_path}/all.properties:user}}") == "alice"
    assert resolve("o", f"${{file:{tmp_path}/token}}") == "whole\nfile"
    assert resolve("o", f"${{directory:{tmp_path}:token}}") == "whole\nfile"
    both = f'required username="${{file:{tmp_path}/all.properties:user}}" password="${{env:PASSWORD}}";'
    assert resolve("o", both) == 'required username="alice" password="hush}";'


def test_what_is_no_reference_stays() -> None:
    for text in ("", "plain", "$", "${}", "${name}", "costs $5", "{env:X}"):
        assert resolve("o", text) == text


def test_a_value_is_not_looked_into_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "${env:HOME}")
    assert resolve("o", "${env:PASSWORD}") == "${env:HOME}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("${env:NOT_THERE_AT_ALL}", "there is no such variable here"),
        ("${file:/not/there:key}", "No such file"),
        ("${file:/not/there}", "No such file"),
        ("${vault:path:key}", "there are ${env:NAME}, "),
        ("${directory:name}", "there are ${env:NAME}, "),
    ],
)
def test_a_reference_to_nothing_names_option_and_reference(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve("kafka.sasl.jaas.config", f"hush {text}")
    assert str(caught.value).startswith(f"kafka.sasl.jaas.config: refers to {text}: ")
    assert says in str(caught.value)
    assert "hush" not in str(caught.value)


def test_a_key_that_a_file_lacks(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a=hush")
    with pytest.raises(ConfigError, match="the file has no such key") as caught:
        resolve("o", f"${{file:{tmp_path}/f:b}}")
    assert "hush" not in str(caught.value)
