"""``e2llm-opt catalog``: what may be named in an inventory file."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from e2llm_opt.catalogue.catalogue import DeviceEntry, ModelEntry, RuntimeRow, WeightFormatRow

    Entry = DeviceEntry | ModelEntry | WeightFormatRow | RuntimeRow


@click.command("catalog")
@click.argument("kind", type=click.Choice(["devices", "models", "weights", "runtimes"]))
@click.argument("search", nargs=-1)
@click.option(
    "--evidence", is_flag=True, help="Say of every number of a device where it comes from."
)
@click.option("--json", "as_json", is_flag=True, help="Print every field as JSON.")
def command(kind: str, search: tuple[str, ...], evidence: bool, as_json: bool) -> None:
    """List what is known of KIND, or of those entries that match SEARCH.

    \b
    Examples:
      e2llm-opt catalog devices jetson
      e2llm-opt catalog devices rtx-4090 --evidence
      e2llm-opt catalog models llama
      e2llm-opt catalog weights --json
    """
    if evidence and kind != "devices":
        raise click.UsageError("--evidence is for devices.")
    entries = _entries(kind, " ".join(search))
    if as_json:
        rows = [_row(entry, with_evidence=evidence) for entry in entries]
        sys.stdout.write(json.dumps(rows, indent=2, ensure_ascii=False) + "\n")
        return
    if not entries:
        click.echo(f"None of the {kind} matches '{' '.join(search)}'.", err=True)
        return
    from e2llm_opt.report.catalogue import print_catalogue, print_evidence

    if evidence:
        print_evidence(cast("Sequence[DeviceEntry]", entries), sys.stdout)
    else:
        print_catalogue(entries, sys.stdout)


def _row(entry: Entry, *, with_evidence: bool) -> dict[str, Any]:
    from e2llm_opt.predict.evidence import device_evidence

    if not with_evidence:
        return asdict(entry)
    numbers = device_evidence(cast("DeviceEntry", entry))
    return asdict(entry) | {"evidence": [asdict(number) for number in numbers]}


def _entries(kind: str, search: str) -> Sequence[Entry]:
    from e2llm_opt.catalogue import catalogue

    read: dict[str, Callable[[str], Sequence[Entry]]] = {
        "devices": catalogue.device_entries,
        "models": catalogue.model_entries,
        "weights": catalogue.weight_format_rows,
        "runtimes": catalogue.runtime_rows,
    }
    return read[kind](search)
