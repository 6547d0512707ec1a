"""What people read: a README for the whole folder, and one for each device."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

from e2llm_opt.export.names import code, one_line
from e2llm_opt.export.scripts import printed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from e2llm_opt.export.process import Launch, Process
    from e2llm_opt.export.setup import Setup, StageSetup

_WIDTH = 100


def readme(engine: str, setup: Setup, launch: Launch, by_folder: Folders, *, has_door: bool) -> str:
    """Return the README of the whole folder: who runs what, in which order, and what to know."""
    lines = [
        f"# {code(setup.model_name)} on {engine}",
        "",
        *_filled(f"Needed on every device: {launch.needs}"),
        *_filled(
            f"Model: {code(_model_of(engine, setup))}. Another file or name: export again with "
            "`--model-path`. Addresses: export again with `--address DEVICE=HOST[:PORT]`; unless "
            "given, they are the hosts of the inventory, or the devices' names as host names."
        ),
        "",
        "## What runs where",
        "",
        "| replica | role | slots | device | layers | address |",
        "|---|---|---|---|---|---|",
        *_rows(setup),
        "",
    ]
    lines += _hops(setup)
    if by_folder:
        lines += _order(by_folder, launch, has_door=has_door)
    else:
        lines += ["## Start", ""]
    for note in launch.notes:
        lines += _filled(note)
    if launch.warnings:
        lines += ["## Warnings", "", *_items(launch.warnings), ""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


Folders = dict[str, list["Process"]]
"""Folder: the processes whose scripts go there, in the order of starting."""


def device_readme(folder: str, own: Sequence[Process], order: Sequence[str]) -> str:
    """Return the README of one folder: what to run, when, how to see that it serves, how to stop.

    Parameters
    ----------
    folder
        Its name.
    own
        Its processes.
    order
        All folders in the order of starting.
    """
    step = list(order).index(folder)
    before = [code(name) for name in order[:step]]
    after = f"after {', '.join(before)}" if before else "first of all"
    after = after if len(before) <= 6 else f"as number {step + 1}, in the order of ../README.md"  # noqa: PLR2004 - a line's worth
    lines = [f"# {code(own[0].device)}", "", *_what(own), ""]
    lines += [
        f"1. Copy this folder to {code(own[0].host)}.",
        f"2. Start it {after}: `./start.sh` (step {step + 1} of {len(order)}).",
        "3. Health: `./health.sh` ends with 0 once it serves.",
        "4. Stop: `./stop.sh`.",
        "",
    ]
    for process in own:
        lines += _filled(f"**Warning**: {process.caution}.") if process.caution else []
        lines += ["It runs", "", f"    {one_line(printed(process))}", ""]
    return "\n".join(lines)


def passenger_readme(stage: StageSetup, driver: Process) -> str:
    """Return the README of a device whose stage another device's process runs."""
    return "\n".join(
        [
            f"# {code(stage.device)}",
            "",
            *_filled(
                f"Layers [{stage.start}, {stage.stop}). It is on the same host as "
                f"{code(driver.device)}, whose process runs this stage too: there is nothing to "
                f"start, check or stop here. See `../{driver.folder}`."
            ),
        ]
    )


def _order(by_folder: Folders, launch: Launch, *, has_door: bool) -> list[str]:
    lines = ["## Start, in this order", ""]
    for step, (folder, own) in enumerate(by_folder.items(), start=1):
        what = "; ".join(one_line(process.title) for process in own)
        where = code(own[0].host)
        lines.append(f"{step}. on {where}: `{folder}/start.sh` - {what}")
    if has_door:
        lines.append(f"{len(by_folder) + 1}. the front door: see `front-door/README.md`")
    lines += [
        "",
        *_filled(
            "Each runs in the foreground. `health.sh` beside it ends with 0 once it serves; go on "
            "then. `stop.sh` stops it; stop in the opposite order."
        ),
    ]
    if not has_door and launch.endpoints:
        one = launch.endpoints[0]
        lines += _filled(f"Users ask {code(f'http://{one.host}:{one.port}/v1')}.")
    return lines


def _hops(setup: Setup) -> list[str]:
    """Say which link the plan counts on, since a device may have several addresses."""
    found = [
        f"{one_line(own.id)}: {code(stage.device)} to {code(hop.device)} over {code(hop.link)}"
        for own in setup.replicas
        for stage in own.stages
        if (hop := stage.stage.next_hop) is not None and hop.device != stage.device
    ]
    if not found:
        return []
    text = "The plan counts on these links; addresses must be those of their interfaces."
    return [*_filled(text), *_items(found), ""]


def _rows(setup: Setup) -> Iterable[str]:
    for replica in setup.replicas:
        for stage in replica.stages:
            cells = (
                code(replica.id),
                str(replica.role),
                str(replica.slots),
                " + ".join(code(own.device) for own in stage.members),
                f"[{stage.start}, {stage.stop})",
                code(stage.host),
            )
            yield "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _what(own: Sequence[Process]) -> list[str]:
    lines = []
    for process in own:
        stage = process.stage
        layers = f", layers [{stage.start}, {stage.stop})" if stage is not None else ""
        lines.append(f"{one_line(process.title)}{layers}.")
    return lines


def _model_of(engine: str, setup: Setup) -> str:
    return setup.gguf if engine in {"llama.cpp", "prima.cpp"} else setup.model


def _filled(text: str) -> list[str]:
    wrapped = textwrap.wrap(one_line(text), _WIDTH, break_long_words=False, break_on_hyphens=False)
    return [*wrapped, ""]


def _items(texts: Iterable[str]) -> Iterable[str]:
    for text in texts:
        wrapped = textwrap.wrap(one_line(text), _WIDTH - 2, break_long_words=False)
        yield "\n  ".join([f"* {wrapped[0]}", *wrapped[1:]])
