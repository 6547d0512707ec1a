"""Reading what a user named, however strange."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2llm_opt.errors import InputError
from e2llm_opt.text_file import read_text


def test_a_byte_order_mark_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffé\n".encode())
    assert read_text(path) == "é\n"


def test_no_more_than_the_limit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("12345", encoding="utf-8")
    assert read_text(path, max_bytes=5) == "12345"
    with pytest.raises(InputError, match="larger than"):
        read_text(path, max_bytes=4)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such device here")
def test_an_endless_file_is_refused() -> None:
    with pytest.raises(InputError, match="/dev/zero: larger than 4 MiB"):
        read_text("/dev/zero")


def test_another_encoding_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("ok\ncaf\u00e9\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"a\.txt:2: not a text file; save it as UTF-8"):
        read_text(path)
