"""A long search shows one line on a terminal; everything else stays silent."""

from __future__ import annotations

import io

from e2llm_opt.cli.progress import search_progress
from e2llm_opt.search.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_no_progress() -> None:
    with search_progress(io.StringIO(), quiet=False) as progress:
        assert progress is None


def test_quiet_gets_no_progress() -> None:
    with search_progress(Terminal(), quiet=True) as progress:
        assert progress is None


def test_a_short_search_shows_nothing() -> None:
    terminal = Terminal()
    with search_progress(terminal, quiet=False) as progress:
        assert progress is not None
        progress(Progress(evaluations=10, elapsed_s=1.9, best="wait 1 s"))
    assert terminal.getvalue() == ""


def test_a_long_search_shows_how_far_it_is() -> None:
    terminal = Terminal()
    with search_progress(terminal, quiet=False) as progress:
        assert progress is not None
        progress(Progress(evaluations=1234, elapsed_s=2.5, best="wait [1 s]"))
    assert "1234 sets of replicas tried" in terminal.getvalue()
    assert "wait [1 s]" in terminal.getvalue()
