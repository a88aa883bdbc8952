"""Journals of a job under test, read while its workers write them."""

from jobs.by_key import deliveries
from jobs.journal import Journal


def test_a_line_that_is_half_written_counts_once_it_is_whole(tmp_path):
    journal = Journal(tmp_path)
    file = tmp_path / "12.jsonl"
    whole = b'{"at": 1.0, "pid": 12, "topic": "test_of_a_journal", "partition": 3, "offsets": [[7, 7]]}\n'
    file.write_bytes(whole + whole[:47])
    assert [entry.offsets for entry in journal.entries()] == [(7,)]
    file.write_bytes(whole + whole)
    assert [entry.offsets for entry in journal.entries()] == [(7,), (7,)]


def test_half_a_line_of_a_call_is_no_call_yet(tmp_path):
    began, ended = (f'["{what}", 0, 5, "k", 1.0]\n' for what in ("began", "ended"))
    file = tmp_path / "12-1.calls"
    file.write_text(began + ended[:9])
    assert [call.ended for call in deliveries(tmp_path)] == [None]
    file.write_text(began + ended)
    assert [call.ended for call in deliveries(tmp_path)] == [1.0]
