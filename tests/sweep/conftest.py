"""A small sweep, and a cluster to run it on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest

from e2llm_opt.sweep import sweep as module
from tests.cli.conftest import LAB
from tests.workers.clusters import local_cluster
from tests.workers.tasks import quick_answer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Write(Protocol):
    """Write a sweep file, beside lab.yaml, and return its path."""

    def __call__(self, text: str) -> str: ...


@pytest.fixture
def write(tmp_path: Path) -> Write:
    (tmp_path / "lab.yaml").write_text(LAB, encoding="utf-8")

    def write_file(text: str) -> str:
        path = tmp_path / "sweep.yaml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write_file


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer without planning, in real workers."""
    monkeypatch.setattr(module, "answer", quick_answer)


@pytest.fixture(scope="module")
def dask() -> Iterator[str]:
    with local_cluster() as address:
        yield address
