"""llama-bench, run in turns so that what else the machine does falls on all runs alike."""

from __future__ import annotations

import json
import statistics
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.engine.programs import priority

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.engine.programs import Programs

Row = dict[str, Any]
PLAIN: Final = ("-t", "1", "--repack", "0")
"""One thread, and weights as in the file: what an RPC worker does, too."""
_TIMEOUT_S: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One call of llama-bench.

    Parameters
    ----------
    model
        The file.
    place
        Words before the command: where it runs.
    options
        Of llama-bench.
    repetitions
        In each round; loading and warming up come on top.
    """

    model: Path
    place: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    repetitions: int = 2


def measured(programs: Programs, jobs: Mapping[str, Job], *, rounds: int) -> dict[str, list[Row]]:
    """Return the rows of each of *jobs*, all of which run in turns, *rounds* times.

    ``avg_ts`` of a row is the **median** over all rounds: what else the machine does for a while
    does not count.
    """
    found: dict[str, dict[str, list[Row]]] = {name: {} for name in jobs}
    for turn in range(1, rounds + 1):
        for name, job in jobs.items():
            for row in _rows(programs, job):
                found[name].setdefault(_key(row), []).append(row)
            speeds = " ".join(_speeds(found[name].values()))
            print(f"  round {turn} of {rounds}: {name}: {speeds} tokens/s", flush=True)
    return {name: [_median(rows) for rows in of.values()] for name, of in found.items()}


def write_rows(rows: Sequence[Row], path: Path) -> Path:
    """Write *rows* as ``llama-bench -o json`` does."""
    path.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return path


def _rows(programs: Programs, job: Job) -> list[Row]:
    words = (*priority(), *job.place, str(programs.bench), "-m", str(job.model))
    done = subprocess.run(
        (*words, *job.options, "-r", str(job.repetitions), "-o", "json"),
        check=False,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} failed:\n{done.stderr[-2000:]}")
    rows: list[Row] = json.loads(done.stdout)
    return rows


def _key(row: Row) -> str:
    return str([row[name] for name in ("n_prompt", "n_gen", "n_depth", "tensor_split")])


def _median(rows: Sequence[Row]) -> Row:
    samples = [speed for row in rows for speed in row["samples_ts"]]
    return {**rows[0], "samples_ts": samples, "avg_ts": statistics.median(samples)}


def _speeds(runs: Iterable[list[Row]]) -> Iterator[str]:
    for rows in runs:
        prompt, answer = rows[-1]["n_prompt"], rows[-1]["n_gen"]
        what = f"pp{prompt}" if prompt else f"tg{answer}"
        yield f"{what} {rows[-1]['avg_ts']:.1f}"
