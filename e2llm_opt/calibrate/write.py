"""A calibration into the inventory file it is of, with what it rests on beside the numbers."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from e2llm_opt.loading.inventory_edit import edited, stated
from e2llm_opt.plan.output import write_text_atomically
from e2llm_opt.text_file import read_text
from e2llm_opt.units import US

if TYPE_CHECKING:
    from datetime import date

    from e2llm_opt.calibrate.calibration import Calibration, DeviceFit

_MAX_SOURCES = 20
_MAX_NAME = 100


def write_calibration(
    calibration: Calibration,
    inventory: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    day: date | None = None,
) -> None:
    """Write fitted efficiencies and overheads into an inventory file.

    Comments, order and spacing stay; each fitted device gets ``efficiency`` and
    ``layer_overhead_us`` where they were fitted, and ``calibrated``, which says since when and on
    how many measurements they rest.

    Parameters
    ----------
    calibration
        Of the devices in the file.
    inventory
        The file.
    output
        Where the result goes; the file itself unless given. It is replaced in one step.
    day
        What the file says of when; today unless given.

    Raises
    ------
    InputError
        When the file cannot be read or written, or a device stands in it so that it cannot be
        changed alone.
    """
    text = read_text(inventory)
    when = (day or datetime.now(tz=UTC).date()).isoformat()
    changes = {fit.name: _changes(fit, calibration, text, when) for fit in calibration.fits}
    name = os.fspath(inventory)
    result = edited(text, changes, file=name)
    write_text_atomically(name if output is None else output, result)


def _changes(fit: DeviceFit, calibration: Calibration, text: str, when: str) -> dict[str, Any]:
    """Return the keys of one device: those that moved, and what they rest on."""
    before, after = fit.before, fit.after
    changes: dict[str, Any] = {}
    efficiency = {
        phase: getattr(after, f"{phase}_efficiency")
        for phase in ("prefill", "decode")
        if getattr(after, f"{phase}_efficiency") != getattr(before, f"{phase}_efficiency")
    }
    if efficiency:
        changes["efficiency"] = efficiency
    if after.layer_overhead_s != before.layer_overhead_s:
        changes["layer_overhead_us"] = float(f"{after.layer_overhead_s / US:.6g}")
    old = stated(text, fit.name, "calibrated")
    old = old if isinstance(old, dict) else {}
    own = [p.measurement.where for p in calibration.points if p.measurement.device == fit.name]
    files = [PurePath(re.sub(r":\d+$", "", where)).name[:_MAX_NAME] for where in own]
    sources = [source for source in dict.fromkeys([*old.get("sources", []), *files]) if source]
    changes["calibrated"] = {
        "date": when,
        "sources": sources[-_MAX_SOURCES:],
        "prefill": old.get("prefill", 0) + fit.num_prefill,
        "decode": old.get("decode", 0) + fit.num_decode,
    }
    return changes
