from __future__ import annotations

import threading

from atomic_files import write_atomically


def test_whoever_reads_a_file_that_is_written_again_and_again_reads_all_of_one_text(tmp_path):
    file, ended = tmp_path / "file", threading.Event()
    texts = ["a" * 5_000, "b" * 7_000]
    write_atomically(file, texts[0])

    def write():
        for number in range(400):
            write_atomically(file, texts[number % 2])
        ended.set()

    writing = threading.Thread(target=write)
    writing.start()
    found = set()
    while not ended.is_set():
        found.add(file.read_text())
    writing.join()
    assert found <= set(texts)
    assert list(tmp_path.iterdir()) == [file]


def test_a_program_may_be_run_from_the_moment_it_is_there(tmp_path):
    write_atomically(tmp_path / "program", "#!/bin/sh\n", mode=0o755)
    assert (tmp_path / "program").stat().st_mode & 0o777 == 0o755
