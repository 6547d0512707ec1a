"""Output is written whole or not at all."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from e2llm_opt.errors import InputError
from e2llm_opt.plan.output import write_text_atomically


def test_a_new_file_is_written_with_the_usual_permissions(tmp_path: Path) -> None:
    ordinary = tmp_path / "ordinary"
    ordinary.write_text("")
    path = tmp_path / "plan.json"
    write_text_atomically(path, "é\n")
    assert path.read_bytes() == "é\n".encode()
    assert path.stat().st_mode == ordinary.stat().st_mode
    assert sorted(tmp_path.iterdir()) == [ordinary, path]


def test_a_regular_file_is_replaced_and_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")
    path.chmod(0o640)
    inode = path.stat().st_ino
    write_text_atomically(path, "new")
    assert path.read_text() == "new"
    assert path.stat().st_ino != inode, "written in place: a reader could see half of it"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    target = tmp_path / "target.json"
    link = tmp_path / "link.json"
    link.symlink_to(target)
    for text in ("first", "second"):
        write_text_atomically(link, text)
        assert link.is_symlink()
        assert target.read_text() == text


def test_nothing_is_left_behind_when_the_last_step_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(InputError, match=r"plan\.json: cannot be written: no space left"):
        write_text_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_pipe_is_written_and_stays_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(path.read_text()), daemon=True)
    reader.start()
    write_text_atomically(path, "through")
    reader.join(timeout=10)
    assert read == ["through"]
    assert path.is_fifo()


def test_the_null_device_is_no_file_to_replace() -> None:
    write_text_atomically(os.devnull, "gone")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


def test_a_dash_is_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_text_atomically("-", "here\n")
    assert capsys.readouterr().out == "here\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "is a directory"),
        ("absent/plan.json", "no such file or directory"),
        ("file/plan.json", "not a directory"),
        ("bad\0name", "this is no file name"),
    ],
)
def test_what_cannot_be_written_is_an_input_error_naming_the_path(
    tmp_path: Path, name: str, words: str
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=f"cannot be written: {words}"):
        write_text_atomically(f"{tmp_path}/{name}", "text")
