"""The partitioner called from outside: what makes no sense is refused."""

from __future__ import annotations

from typing import Any

import pytest

from e2llm_opt.errors import InputError
from e2llm_opt.partition.partition import partition
from tests.check.small import problem, star


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        *(
            ({"devices": rows}, r"devices must be different rows of problem.devices \(0 … 1\)")
            for rows in ([], [0, 0], [0, 2], [-1])
        ),
        ({"slots": 0}, "slots 0, micro_batches 1"),
        ({"micro_batches": 0}, "slots 2, micro_batches 0"),
        ({"micro_batches": 3}, "slots 2, micro_batches 3"),
        ({"criterion": "luck"}, "criterion must be 'bottleneck' or 'sum', got 'luck'"),
    ],
)
def test_impossible_arguments_are_refused(arguments: dict[str, Any], told: str) -> None:
    right: dict[str, Any] = {"devices": [0, 1], "role": "DECODE", "slots": 2}
    with pytest.raises(InputError, match=told):
        partition(problem(star("a", "b")), **{**right, **arguments})
