"""The journal of a sweep: nothing that it took is lost, and nothing torn stays."""

from __future__ import annotations

import errno
import json
import os
import resource
from typing import TYPE_CHECKING

import pytest

from e2llm_opt import InputError
from e2llm_opt.sweep.journal import SCHEMA, Journal

if TYPE_CHECKING:
    from pathlib import Path

ONE, OTHER = {"status": "planned", "figures": {"gap": 0.1}}, {"status": "infeasible", "figures": {}}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.csv.journal"


def written(path: Path) -> Path:
    """Return a journal with two records."""
    with Journal(str(path)) as journal:
        journal.add("a", ONE)
        journal.add("b", OTHER)
    return path


def test_records_are_there_when_it_is_opened_again(path: Path) -> None:
    with Journal(str(written(path))) as journal:
        assert journal.records == {"a": ONE, "b": OTHER}
    lines = path.read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[0]) == {"schema": SCHEMA}
    assert len(lines) == 3


def test_a_record_is_on_disk_when_add_returns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = os.fsync

    def sync(file: int) -> None:
        synced.append(file)
        real(file)

    monkeypatch.setattr(os, "fsync", sync)
    with Journal(str(path)) as journal:
        synced.clear()
        journal.add("a", ONE)
        assert len(synced) == 1
        assert b'"a"' in path.read_bytes()


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_torn_last_line_is_taken_away(path: Path, cut: int) -> None:
    whole = written(path).read_bytes()
    path.write_bytes(whole[:-cut])
    with Journal(str(path)) as journal:
        assert journal.records == {"a": ONE}
        journal.add("c", OTHER)
    with Journal(str(path)) as journal:
        assert journal.records == {"a": ONE, "c": OTHER}


def test_every_byte_may_be_the_last(path: Path) -> None:
    """Whatever a crash leaves, the journal opens and holds the lines that were whole."""
    whole = written(path).read_bytes()
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        with Journal(str(path)) as journal:
            num_lines = whole[:length].count(b"\n")
            assert list(journal.records) == ["a", "b"][: max(0, num_lines - 1)]
        assert path.read_bytes().endswith(b"\n")


def test_a_line_that_cannot_be_read_is_passed_over(path: Path) -> None:
    lines = written(path).read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"\0" * 30 + b"\n[1]\n" + lines[2])
    with Journal(str(path)) as journal:
        assert journal.records == {"b": OTHER}


@pytest.mark.parametrize("text", ["my notes", "a,b\n1,2\n", '{"schema": "other"}\n'])
def test_another_file_is_left_alone(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"journal: is no journal of a sweep; move it away"):
        Journal(str(path))
    assert path.read_text(encoding="utf-8") == text


def test_two_sweeps_do_not_write_to_one_journal(path: Path) -> None:
    with Journal(str(path)), pytest.raises(InputError, match="another sweep is writing to it"):
        Journal(str(path))
    with Journal(str(path)):
        pass


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written: no such file"):
        Journal(str(tmp_path / "nowhere" / "results.csv.journal"))


def test_a_full_disk_keeps_what_is_there(path: Path) -> None:
    """The limit on the size of a file refuses bytes in the middle of a line, as a disk does."""
    written(path)
    size = path.stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Journal(str(path)) as journal:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, hard))
        try:
            with pytest.raises(InputError, match="file too large; what is done is kept; the same"):
                journal.add("c", ONE)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert path.stat().st_size == size
        journal.add("c", ONE)
    with Journal(str(path)) as journal:
        assert list(journal.records) == ["a", "b", "c"]


def test_a_disk_that_is_full_when_synced_is_said(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Journal(str(written(path))) as journal:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(InputError, match="cannot be written: no space left on device"):
            journal.add("c", ONE)
        monkeypatch.undo()
    with Journal(str(path)) as journal:
        assert list(journal.records) == ["a", "b"]
