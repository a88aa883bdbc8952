"""Wrong calls of the admin's commands: refused before anything connects (a unit test may not)."""

from pathlib import Path

import pytest

from kafka_actors.cli.main import run_command_line

RESET = ["groups", "reset-offsets", "-g", "g"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["groups", "describe"], "give either --group or --all-groups"),
        (["groups", "delete", "-g", "g", "--all-groups"], "give either --group or --all-groups"),
        (["lag"], "give either --group or --all-groups"),
        ([*RESET, "--topic", "t"], "give one of --to-earliest, --to-latest, --to-current, --to-offset, "),
        ([*RESET, "--topic", "t", "--to-latest", "--shift-by", "-1"], "give one of --to-earliest, "),
        ([*RESET, "--to-latest"], "give either --topic or --all-topics"),
        ([*RESET, "--to-latest", "--topic", "t", "--all-topics"], "give either --topic or --all-topics"),
        ([*RESET, "--to-latest", "--topic", "t:x"], "--topic t:x: 'x' is not a partition: give ids such as"),
        ([*RESET, "--topic", "t", "--to-datetime", "today"], "--to-datetime 'today': give YYYY-MM-DDTHH"),
        ([*RESET, "--topic", "t", "--by-duration", "1h"], "--by-duration: '1h' is not a duration such as"),
        (
            [*RESET, "--topic", "t", "--to-offset", "-1"],
            "Invalid value for '--to-offset': '-1' is no integer from 0 on",
        ),
        ([*RESET, "--topic", "t", "--from-file", "x.csv"], "--from-file names the topics: give neither"),
        ([*RESET, "--from-file", "none.csv"], "--from-file none.csv: [Errno 2] No such file"),
        ([*RESET, "--topic", "t", "--to-latest", "--dry-run", "--execute"], "give either --dry-run or"),
        ([*RESET, "--topic", "t", "--to-latest", "--export", "-o", "json"], "--export is CSV: it goes"),
        (
            ["offsets", "--time", "soon"],
            "--time 'soon': give earliest, latest, max-timestamp, milliseconds since 1970, or YYYY-MM-DDTHH",
        ),
        (["topics", "create"], "Missing option '-t' / '--topic'."),
        (["topics", "create", "-t", "t", "-c", "retention"], "--config 'retention': give NAME=VALUE"),
        (
            ["topics", "create", "-t", "t", "--replica-assignment", "a"],
            "--replica-assignment 'a': give broker",
        ),
        (
            ["topics", "create", "-t", "t", "--replica-assignment", "1", "--partitions", "1"],
            "--replica-assignment goes with neither",
        ),
        (["topics", "alter", "-t", "t"], "Missing option '--partitions'."),
        (["topics", "delete"], "Missing option '-t' / '--topic'."),
        (["configs", "describe"], "give --topic, --broker, --broker-defaults or --group"),
        (["configs", "describe", "--broker", "b1"], "BROKER b1 is no broker: give its id"),
        (
            ["configs", "alter", "-t", "t"],
            "give --add-config, --delete-config, --append-config or --subtract",
        ),
        (["configs", "alter", "-t", "t", "--add-config", "a"], "--add-config 'a': give NAME=VALUE"),
        (
            ["configs", "alter", "-t", "t", "--add-config", "a=1", "--delete-config", "a"],
            "a is to be changed in two ways: give it once",
        ),
        (["acls", "add", "--cluster"], "give --allow-principal or --deny-principal"),
        (
            ["acls", "add", "--allow-principal", "User:a"],
            "give --topic, --group, --transactional-id or --cluster",
        ),
        (["acls", "add", "--topic", "t", "--allow-principal", "User:a"], "give --operation"),
        (
            ["acls", "add", "--topic", "t", "--allow-principal", "bob", "--operation", "read"],
            "principal is 'bob': give its type and name, such as 'User:alice'",
        ),
        (
            ["acls", "list", "--operation", "reading"],
            "operation is 'READING', a str: accepts ALL, READ, WRITE",
        ),
        (["acls", "remove"], "give either --all, or which ACLs: --topic, --group,"),
        (["acls", "remove", "--all", "--topic", "t"], "give either --all, or which ACLs"),
        (["topics", "list", "--topic", "("], "--topic '(' is not a regular expression"),
        (["topics", "list", "-X", "acks"], "-X: is 'acks': give NAME=VALUE"),
        (["groups", "list", "--state", "Stable,Idle"], "--state: 'Idle' is none of Stable, Empty, Dead,"),
        (["groups", "list", "--type", "modern"], "--type: 'modern' is none of Classic, Consumer"),
        (["topics", "list", "-X", "acks=1"], "acks: is not an option"),
        (["topics", "list", "-X", "ssl.cafile=x"], "ssl_cafile: is given, but security_protocol is"),
        (["topics", "list", "-b", "a:b"], "bootstrap_servers: has 'a:b'"),
        (["topics", "list", "--command-config", "none"], "--command-config none: [Errno 2] No such file"),
        (["groups", "lits"], "No such command 'lits'. Did you mean 'list'?"),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_code_2(
    arguments: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command_line(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"kafka-actors: error: {says}")
    assert err.count("\n") == 1
