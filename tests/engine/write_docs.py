"""Write the figures of the last ``make test-engine`` into docs/accuracy.md.

python -m tests.engine.write_docs
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from tests.engine.programs import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

PAGE: Final = ROOT / "docs" / "accuracy.md"
_MEASURED: Final = re.compile(r"(?<=<!-- engine -->\n).*?(?=<!-- end of engine -->)", re.DOTALL)


def with_figures(text: str, tables: dict[str, Any]) -> str:
    """Return the page *text* with the figures of *tables* between its marks."""
    return _MEASURED.sub(lambda _: "\n".join(("", *_lines(tables), "")), text)


def _lines(tables: dict[str, Any]) -> Iterator[str]:
    held_out, pipeline = tables["held_out_size"], tables["pipeline"]
    yield (
        f"Written by `python -m tests.engine.write_docs`; do not edit. Measured on "
        f"{held_out['date']}, on cores of {held_out['cpu']}."
    )
    yield from _table(
        ("size left out", "weights", "phase"),
        (
            ((row["size"], row["weights"], row["phase"]), row)
            for row in sorted(held_out["rows"], key=lambda row: str(row["phase"]))
        ),
    )
    yield (
        f"Two workers: {pipeline['workers']}. A probe of the link measured "
        f"{pipeline['bandwidth_mbit_s']:.0f} Mbit/s and {pipeline['latency_ms']:.2g} ms; a hop "
        f"costs {pipeline['hop_overhead_ms']:.1f} ms on top, fitted to another model."
    )
    yield from _table(
        ("layers, slow + fast", "phase"),
        (((" + ".join(map(str, row["layers"])), row["phase"]), row) for row in pipeline["rows"]),
    )


def _table(
    names: Sequence[str], rows: Iterable[tuple[Sequence[str], dict[str, Any]]]
) -> Iterator[str]:
    yield ""
    yield f"| {' | '.join(names)} | predicted, tokens/s | measured, tokens/s | error |"
    yield f"|{'---|' * len(names)}---:|---:|---:|"
    yield from (_row(words, row) for words, row in rows)
    yield ""


def _row(names: Sequence[str], row: dict[str, Any]) -> str:
    figures = f"{row['predicted']:.1f} | {row['measured']:.1f} | {100 * row['error']:+.0f} %"
    return f"| {' | '.join(names)} | {figures} |"


def main() -> None:
    """Rewrite the page in place."""
    results = (ROOT / "build" / "engine" / "results.json").read_text(encoding="utf-8")
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_figures(text, json.loads(results)), encoding="utf-8")


if __name__ == "__main__":
    main()
