"""``e2llm-opt schema`` prints what ships with the package."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Run


def test_the_schema_is_the_shipped_file(run: Run) -> None:
    shipped = files("e2llm_opt.plan").joinpath("plan.schema.json").read_text(encoding="utf-8")
    assert run("schema").stdout == shipped, "run `make schema`"
