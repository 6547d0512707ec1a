"""What ``llama-bench -o json``, ``jsonl`` or ``csv`` printed, of any version, as runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from e2llm_opt.errors import Fault, InputError
from e2llm_opt.loading.bench_names import models_of, weights_of
from e2llm_opt.loading.measured_run import Run, positive, whole
from e2llm_opt.speed import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NEEDED = ("n_prompt", "n_gen")
"""Fields that every version has, with ``avg_ts`` or ``avg_ns``."""
_NEXT = re.compile(r"[^\s,\[\]]")
_NOT_JSON = re.compile(r"(:\s*)-?(?:nan|inf)\b")
_REMEDY = "run llama-bench with -o json, -o jsonl or -o csv"
Row = dict[str, Any]


def json_rows(text: str, file: str, notes: list[str]) -> Iterator[tuple[int, Row]]:
    """Yield line and fields of every object in *text*: an array, lines, with a log between them.

    A row that is broken off ends it, and is noted.
    """
    text = _NOT_JSON.sub(r"\1NaN", text)
    decoder, at = json.JSONDecoder(), 0
    while match := _NEXT.search(text, at):
        at = match.start()
        line = text.count("\n", 0, at) + 1
        if text[at] != "{":  # what the driver logs
            end = text.find("\n", at)
            at = end if end >= 0 else len(text)
            continue
        try:
            row, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            notes.append(f"{file}:{line}: left out, the row is broken off or no JSON")
            return
        yield line, row


def runs_of(rows: Iterable[tuple[int, Row]], file: str, notes: list[str]) -> list[Run]:
    """Return the runs of llama-bench's *rows*; of those that are none a note says why.

    Raises
    ------
    InputError
        When no row has the fields of llama-bench.
    """
    runs, num_rows = [], 0
    for line, row in rows:
        has_speed = "avg_ts" in row or "avg_ns" in row
        if not has_speed or any(key not in row for key in NEEDED):
            continue
        num_rows += 1
        reason = _unusable(row)
        if reason:
            notes.append(f"{file}:{line}: left out, {reason}")
        else:
            runs.append(_run(row, file, line))
    if num_rows == 0:
        wrong = f"no rows of llama-bench: {', '.join(NEEDED)} and avg_ts or avg_ns are missing"
        raise InputError([Fault(file=file, wrong=wrong, right=_REMEDY)])
    return runs


def refuse_other_formats(text: str, file: str) -> None:
    """Refuse what llama-bench prints for people or for databases.

    Raises
    ------
    InputError
        When *text* is Markdown or SQL.
    """
    head = text.lstrip()[:10_000]
    is_table = re.search(r"^\| *(model|---)", head, re.MULTILINE) is not None
    is_sql = re.search(r"^\s*(CREATE TABLE|INSERT INTO)\b", head, re.MULTILINE) is not None
    if is_table or is_sql:
        wrong = f"this is llama-bench's {'Markdown' if is_table else 'SQL'}"
        raise InputError([Fault(file=file, wrong=wrong, right=_REMEDY)])


def _unusable(row: Row) -> str:
    """Return why a row says nothing about one device that holds the model, or an empty text."""
    prompt, answer = whole(row["n_prompt"], -1), whole(row["n_gen"], -1)
    gpus = [name for name in _text(row, "gpu_info").split(",") if name.strip()]
    chosen = _text(row, "devices")
    is_split = _text(row, "split_mode") not in {"", "none"} and chosen in {"", "auto"}
    has_rpc = "RPC" in _text(row, "backends") or bool(_text(row, "rpc_servers"))
    reasons = {
        "it says neither n_prompt nor n_gen": min(prompt, answer) < 0 or prompt + answer == 0,
        f"it times prompt and answer together (pp{prompt}+tg{answer})": prompt and answer,
        f"the run failed (avg_ts {row.get('avg_ts')!r})": not _speed(row),
        "it ran on several GPUs": (is_split and len(gpus) > 1) or "/" in chosen,
        "its experts ran on the CPU (n_cpu_moe)": whole(row.get("n_cpu_moe")) > 0,
        "it ran on other machines, too (RPC)": has_rpc,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _speed(row: Row) -> float:
    """Return the mean speed; of versions without avg_ts by the mean time [tokens/s]."""
    if "avg_ts" in row:
        return positive(row["avg_ts"])
    time_ns = positive(row["avg_ns"])
    return 1e9 * (whole(row["n_prompt"]) + whole(row["n_gen"])) / time_ns if time_ns else 0.0


def _run(row: Row, file: str, line: int) -> Run:
    prompt = whole(row["n_prompt"])
    model_type, filename = _text(row, "model_type"), _text(row, "model_filename")
    gpu_layers = whole(row.get("n_gpu_layers"), -1)
    gpu = _text(row, "gpu_info")
    chunks = [whole(row.get(key)) for key in ("n_ubatch", "n_batch")]
    return Run(
        file=file,
        line=line,
        phase=Phase.PREFILL if prompt else Phase.DECODE,
        tokens_per_s=_speed(row),
        tokens=prompt or whole(row["n_gen"]),
        depth=max(whole(row.get("n_depth")), 0),
        hardware=gpu if gpu and gpu_layers != 0 else _text(row, "cpu_info"),
        models=(
            *_own_file(filename, file),
            *models_of(model_type, filename, positive(row.get("model_n_params"))),
        ),
        weights=weights_of(model_type, filename),
        kv_cache=_text(row, "type_k"),
        size_bytes=positive(row.get("model_size")),
        gpu_layers=gpu_layers,
        is_on_gpu=bool(gpu) and gpu_layers != 0 if "gpu_info" in row else None,
        chunk_tokens=min((size for size in chunks if size > 0), default=0),
    )


def _own_file(filename: str, file: str) -> tuple[str, ...]:
    """Return the model's file, which knows every byte, if it is where the row says."""
    is_there = filename.lower().endswith(".gguf") and (Path(file).parent / filename).is_file()
    return (filename,) if is_there else ()


def _text(row: Row, key: str) -> str:
    value = row.get(key)
    return value.strip() if isinstance(value, str) else ""
