"""The files of options that the pages show are read as they stand there, and mean what they say."""

import json
from pathlib import Path

import pytest
from pages.blocks import ROOT, Block, blocks_of, pages

from kafka_actors.cli.main import run_command_line

JOB = 'import kafka_actors as ka\njob = ka.Job(topics=["t"], group_id="g", bootstrap_servers="a:1", process=print)\n'
KINDS = {"toml": "job.toml", "properties": "client.properties"}
SHOWN = [block for page in pages() for block in blocks_of(page) if block.language in KINDS]
TRUSTED = "/etc/kafka/ca.pem"


def show(
    block: Block, directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> dict[str, dict[str, str]]:
    """What `config show` makes of a file with this text: its rows that don't have defaults."""
    assert TRUSTED in block.code or "ssl" not in block.code
    (directory / "ca.pem").write_text("-----BEGIN CERTIFICATE-----")
    (directory / "orders.py").write_text(JOB)
    file = directory / KINDS[block.language]
    file.write_text(block.code.replace(TRUSTED, str(directory / "ca.pem")))
    monkeypatch.setenv("KAFKA_PASSWORD", "hush")
    code = run_command_line(["config", "show", "-c", str(file), "-o", "json"])
    out, err = capsys.readouterr()
    assert code == 0, f"{block}: {err}"
    assert err == ""
    assert "hush" not in out
    return {row["option"]: row for row in json.loads(out) if row["source"] == "file"}


@pytest.mark.parametrize("block", SHOWN, ids=str)
def test_a_file_that_a_page_shows_is_read(block, tmp_path, monkeypatch, capsys) -> None:
    found = show(block, tmp_path, monkeypatch, capsys)
    assert found["bootstrap_servers"]["value"]
    assert found["sasl_mechanism"]["value"] == "SCRAM-SHA-512"
    assert found["sasl_plain_username"]["value"] == "orders"
    assert found["sasl_plain_password"]["value"] == "***"
    assert found["sasl_plain_password"]["reference"]


def test_there_are_such_files() -> None:
    assert {(block.page.relative_to(ROOT).as_posix(), block.language) for block in SHOWN} >= {
        ("README.md", "toml"),
        ("docs/reference/options.md", "toml"),
        ("docs/how-to/secured-clusters.md", "properties"),
    }


def test_a_misspelt_option_of_a_page_would_be_found(tmp_path, capsys, monkeypatch) -> None:
    (block,) = [block for block in SHOWN if block.page.name == "options.md"]
    wrong = block._replace(lines=[line.replace("session.timeout", "sesion.timeout") for line in block.lines])
    assert wrong.lines != block.lines
    with pytest.raises(AssertionError, match="did you mean 'session_timeout_ms'"):
        show(wrong, tmp_path, monkeypatch, capsys)
