"""A server over both workers puts layers where the cut says, and answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.engine.bed import TooSmallError, bed
from tests.engine.random_models import SMALL, written
from tests.engine.server import serving

if TYPE_CHECKING:
    from pathlib import Path

    from tests.engine.programs import Programs

pytestmark = pytest.mark.engine


def test_layers_are_where_the_cut_says_and_a_prompt_is_answered(
    engine: Programs, folder: Path
) -> None:
    """``-ts`` counts the output head with the last device: 3/6 is 3 + 5 layers."""
    model = written(SMALL, "q8_0", folder / "models")
    options = ("-ts", "3,6", "-c", "512", "-np", "1", "--no-repack")
    log = folder / "server.log"
    try:
        with bed(engine, folder) as workers:
            rpc, host = workers.rpc(","), workers.hosts.second
            with serving(engine, host, model, log, *rpc, *options) as server:
                answer = server.completion("hello", 8)
                assigned = server.assigned()
    except TooSmallError as reason:
        pytest.skip(str(reason))
    assert answer["tokens_predicted"] == 8
    assert answer["content"]
    assert [assigned[layer] for layer in range(9)] == ["RPC0"] * 3 + ["RPC1"] * 6
