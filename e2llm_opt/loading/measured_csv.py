"""Measured speeds in a CSV table, a device and a model a row, as runs."""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING

from e2llm_opt.errors import Fault, InputError
from e2llm_opt.loading.measured_run import (
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    Run,
    positive,
    whole,
)
from e2llm_opt.speed import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

_SPEED = {Phase.PREFILL: "prefill_tok_s", Phase.DECODE: "decode_tok_s"}
_LENGTH = {Phase.PREFILL: "prefill_len", Phase.DECODE: "decode_len"}
_USUAL = {Phase.PREFILL: PROMPT_TOKENS, Phase.DECODE: OUTPUT_TOKENS}
_WEIGHTS = ("quant", "weights")
HEADER = "device, model, quant and prefill_tok_s or decode_tok_s"
MAX_FAULTS = 20


def csv_rows(text: str, file: str, first: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield line and cells of the table whose header has the column *first*.

    What a program logs before the header is passed over.

    Raises
    ------
    InputError
        When the text is no CSV.
    """
    lines = text.splitlines(keepends=True)
    start = next((i for i, line in enumerate(lines) if first in _cells(line)), len(lines))
    reader = csv.reader(lines[start:])
    try:
        header = [cell.strip() for cell in next(reader, [])]
        for cells in reader:
            if any(cells):
                given = (cell.strip() for cell in cells)
                row = dict.fromkeys(header, "") | dict(zip(header, given, strict=False))
                yield start + reader.line_num, row
    except csv.Error as error:
        raise InputError(
            [Fault(file=file, line=start + reader.line_num, wrong=f"no CSV: {error}")]
        ) from None


def _cells(line: str) -> list[str]:
    return [cell.strip().strip('"') for cell in line.split(",")]


def has_column(text: str, name: str) -> bool:
    """Whether a line of the first ones is a CSV header with the column *name*."""
    return any(name in _cells(line) for line in text.splitlines()[:200])


def runs_of_table(text: str, file: str, notes: list[str]) -> list[Run]:
    """Return the runs of a table with a column ``device``: up to two a row.

    Raises
    ------
    InputError
        With the lines that are wrong (the first 20), or when columns are missing.
    """
    runs: list[Run] = []
    faults: list[Fault] = []
    vague: dict[str, int] = {}
    for line, row in csv_rows(text, file, "device"):
        if not runs and not faults:
            _refuse_header(row, file)
        given = [phase for phase in Phase if row.get(_SPEED[phase])]
        if not given:
            notes.append(f"{file}:{line}: left out, it has no speed")
        for phase in given:
            if not positive(row[_SPEED[phase]]):
                wrong = f"{_SPEED[phase]} must be a positive number, got '{row[_SPEED[phase]]}'"
                faults.append(Fault(file=file, line=line, wrong=wrong, right="in tokens a second"))
                continue
            runs.append(_run(row, phase, (file, line), vague))
        if len(faults) >= MAX_FAULTS:
            break
    if faults:
        raise InputError(faults)
    notes.extend(
        f"{file}: {said} is no number of tokens; the usual one is taken for {count} speeds"
        for said, count in vague.items()
    )
    return runs


def _refuse_header(row: dict[str, str], file: str) -> None:
    missing = [key for key in ("device", "model") if key not in row]
    missing += [] if set(_WEIGHTS) & set(row) else ["quant"]
    missing += [] if set(_SPEED.values()) & set(row) else ["decode_tok_s"]
    if missing:
        wrong = f"columns are missing: {', '.join(missing)}"
        raise InputError([Fault(file=file, wrong=wrong, right=f"a table has {HEADER}")])


def _run(row: dict[str, str], phase: Phase, place: tuple[str, int], vague: dict[str, int]) -> Run:
    said = row.get(_LENGTH[phase], "")
    at_context = re.fullmatch(r"@\s*(\d{1,9})\s*(?:ctx|context)?", said)
    tokens = whole(said)
    if said and tokens < 1 and at_context is None:
        key = f"{_LENGTH[phase]} '{said[:60]}'"
        vague[key] = vague.get(key, 0) + 1
    model = row.get("model", "")
    return Run(
        file=place[0],
        line=place[1],
        phase=phase,
        tokens_per_s=positive(row[_SPEED[phase]]),
        tokens=tokens if tokens > 0 else _USUAL[phase],
        depth=int(at_context[1]) if at_context else max(whole(row.get("depth")), 0),
        batch=max(whole(row.get("batch"), 1), 1),
        device=row.get("device", ""),
        hardware=row.get("device_key", ""),
        models=(model,) if model else (),
        weights=next((row[key] for key in _WEIGHTS if row.get(key)), ""),
        kv_cache=row.get("kv_cache", ""),
    )
