"""``e2llm-opt catalog``: what may be named in an inventory file."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from e2llm_opt.catalogue.catalogue import DeviceEntry, ModelEntry, RuntimeRow, WeightFormatRow

    Entry = DeviceEntry | ModelEntry | WeightFormatRow | RuntimeRow


@click.command("catalog")
@click.argument("kind", type=click.Choice(["devices", "models", "weights", "runtimes"]))
@click.argument("search", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print every field as JSON.")
def command(kind: str, search: tuple[str, ...], as_json: bool) -> None:
    """List what is known of KIND, or of those entries that match SEARCH.

    \b
    Examples:
      e2llm-opt catalog devices jetson
      e2llm-opt catalog models llama
      e2llm-opt catalog weights --json
    """
    entries = _entries(kind, " ".join(search))
    if as_json:
        rows = [asdict(entry) for entry in entries]
        sys.stdout.write(json.dumps(rows, indent=2, ensure_ascii=False) + "\n")
        return
    if not entries:
        click.echo(f"None of the {kind} matches '{' '.join(search)}'.", err=True)
        return
    from e2llm_opt.report.catalogue import print_catalogue

    print_catalogue(entries, sys.stdout)


def _entries(kind: str, search: str) -> Sequence[Entry]:
    from e2llm_opt.catalogue import catalogue

    read: dict[str, Callable[[str], Sequence[Entry]]] = {
        "devices": catalogue.device_entries,
        "models": catalogue.model_entries,
        "weights": catalogue.weight_format_rows,
        "runtimes": catalogue.runtime_rows,
    }
    return read[kind](search)
