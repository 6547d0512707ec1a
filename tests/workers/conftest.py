"""A real cluster: a scheduler, and two worker processes with nannies that replace them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.workers.clusters import local_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def dask() -> Iterator[str]:
    """Return the address of a scheduler with two worker processes."""
    with local_cluster() as address:
        yield address
