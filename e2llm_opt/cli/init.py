"""``e2llm-opt init``: a first inventory, by questions or by options."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from e2llm_opt.cli import words
from e2llm_opt.cli.names import Pair
from e2llm_opt.cli.problem import Amount
from e2llm_opt.errors import Fault, InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2llm_opt.importers.starter import Wire

_DEFAULTS: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "weights": "q4_k_m",
    "runtime": "llama.cpp",
    "rate": 0.05,
    "prompt_tokens": 600.0,
    "output_tokens": 300.0,
}
_POSITIVE = Amount(min=0, min_open=True)
_QUESTIONS = {
    "model": "Model to serve (a catalogue name, or a path to config.json or .gguf)",
    "weights": "Weight format",
    "runtime": "Engine",
    "rate": "Requests a second",
    "prompt_tokens": "Mean prompt [tokens]",
    "output_tokens": "Mean answer [tokens]",
}


class _Link(click.ParamType):  # type: ignore[type-arg] # generic from click 8.4 on
    """``tower,mini=940,0.2``."""

    name = "device,device=mbit[,ms]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[tuple[str, str], float, float | None]:
        """Return ends, bandwidth and latency, or fail as a usage error."""
        if isinstance(value, tuple):
            return value
        ends, _, rates = str(value).rpartition("=")
        names = tuple(end.strip() for end in ends.split(","))
        try:
            numbers = [float(rate) for rate in rates.split(",")]
        except ValueError:
            numbers = []
        if len(names) != 2 or not all(names) or len(numbers) not in {1, 2}:  # noqa: PLR2004
            self.fail(f"{value!r} is not DEVICE,DEVICE=MBIT or DEVICE,DEVICE=MBIT,MS.", param, ctx)
        return (names[0], names[1]), numbers[0], numbers[1] if len(numbers) > 1 else None


@click.command("init")
@click.option(
    "--device",
    "devices",
    type=Pair("NAME=TYPE", "tower=rtx-3060-12gb"),
    multiple=True,
    metavar="NAME=TYPE",
    help="A device and its catalogue type; may be repeated.",
)
@click.option(
    "--link",
    "links",
    type=_Link(),
    multiple=True,
    metavar="A,B=MBIT[,MS]",
    help="A link between two devices [Mbit/s, ms]; a switch joins all unless given.",
)
@click.option("--model", help="What to serve.", shell_complete=words.catalogue("models"))
@click.option("--weights", help="Weight format.", shell_complete=words.catalogue("weights"))
@click.option("--runtime", help="Engine.", shell_complete=words.catalogue("runtimes"))
@click.option("--rate", type=Amount(min=0, min_open=True), help="Requests a second.")
@click.option("--prompt-tokens", type=Amount(min=1), help="Mean prompt [tokens].")
@click.option("--output-tokens", type=Amount(min=1), help="Mean answer [tokens].")
@click.option(
    "-o",
    "--output",
    help="Write the inventory here; standard output unless given.",
    shell_complete=words.files,
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def command(
    devices: tuple[tuple[str, str], ...],
    links: tuple[tuple[tuple[str, str], float, float | None], ...],
    output: str | None,
    force: bool,
    **options: Any,
) -> None:
    """Write a first inventory with comments, ready to be planned.

    On a terminal, without --device, it asks; else the options say all.

    \b
    Examples:
      e2llm-opt init -o homelab.yaml
      e2llm-opt init --device tower=rtx-3060-12gb --device mini=apple-m4 --model qwen3-8b
      e2llm-opt init --device a=rtx-3090 --device b=rtx-3090 --link a,b=9400,0.05 -o lab.yaml
    """
    from e2llm_opt.importers.starter import Starter, starter_text
    from e2llm_opt.plan.output import STANDARD_OUTPUT, refuse_unwritable, write_text_atomically

    target = output or STANDARD_OUTPUT
    refuse_unwritable(target)
    if target != STANDARD_OUTPUT and os.path.lexists(target) and not force:
        right = "choose another name, or give --force"
        raise InputError([Fault(file=target, wrong="is there already", right=right)])
    asks = not devices and sys.stdin.isatty()
    if not devices and not asks:
        raise click.UsageError("Name devices with --device NAME=TYPE; there is nobody to ask.")
    wires = [_wire(*link) for link in links]
    if asks:
        try:
            devices = _asked_devices()
            wires = wires or _asked_network(len(devices))
            options |= _asked(options)
        except click.Abort:
            raise KeyboardInterrupt from None
    answers = _with_defaults(options, Path(target).parent)
    starter = Starter(devices=devices, wires=wires, **answers)
    text = starter_text(starter, file="inventory.yaml" if target == "-" else target)
    write_text_atomically(target, text)
    if target != STANDARD_OUTPUT:
        click.echo(f"written into {target}; next: e2llm-opt plan {shlex.quote(target)}")


def _with_defaults(options: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return all answers; the path of a model is right from the *folder* of the inventory."""
    model = options["model"] or _DEFAULTS["model"]
    given = {key: value for key, value in options.items() if value is not None}
    found = _DEFAULTS | ({"weights": ""} if _is_gguf(model) else {}) | given
    if Path(model).is_file() and folder.resolve() != Path.cwd():
        found["model"] = str(Path(model).resolve())
    found["rate_per_s"] = found.pop("rate")
    return found


def _is_gguf(model: str) -> bool:
    return model.lower().endswith(".gguf")


def _wire(ends: tuple[str, str], bandwidth_mbit_s: float, latency_ms: float | None) -> Wire:
    from e2llm_opt.importers.starter import DEFAULT_LATENCY_MS, Wire

    latency = DEFAULT_LATENCY_MS if latency_ms is None else latency_ms
    return Wire(between=ends, bandwidth_mbit_s=bandwidth_mbit_s, latency_ms=latency)


def _asked_devices() -> tuple[tuple[str, str], ...]:
    """Ask for devices until an empty name; a type that is not known is asked for again."""
    from e2llm_opt.catalogue.catalogue import device_entry

    found: list[tuple[str, str]] = []
    while True:
        more = " (empty: no more)" if found else ""
        name = click.prompt(f"Name of a machine{more}", default="", show_default=False, err=True)
        if not name.strip():
            if found:
                return tuple(found)
            continue
        while True:
            kind = click.prompt("  its type (e2llm-opt catalog devices)", err=True)
            try:
                found.append((name.strip(), device_entry(kind).key))
            except InputError as error:
                click.echo(f"  {error}", err=True)
                continue
            break


def _asked_network(num_devices: int) -> list[Wire]:
    """Ask for the network that joins all machines."""
    from e2llm_opt.importers.starter import DEFAULT_LATENCY_MS, DEFAULT_MBIT_S, Wire

    if num_devices == 1:
        return []
    bandwidth = click.prompt(
        "Network between them [Mbit/s]", default=DEFAULT_MBIT_S, type=_POSITIVE, err=True
    )
    latency = click.prompt(
        "  its latency, one way [ms]", default=DEFAULT_LATENCY_MS, type=Amount(min=0), err=True
    )
    return [Wire(bandwidth_mbit_s=bandwidth, latency_ms=latency)]


def _asked(options: dict[str, Any]) -> dict[str, Any]:
    """Ask for what no option says; a .gguf has its own weight format."""
    found: dict[str, Any] = {}
    for key, question in _QUESTIONS.items():
        is_known = key == "weights" and _is_gguf(found.get("model") or options["model"] or "")
        if options[key] is None and not is_known:
            check = _known(key) if isinstance(_DEFAULTS[key], str) else None
            kind = None if check else _POSITIVE
            found[key] = click.prompt(
                question, default=_DEFAULTS[key], type=kind, value_proc=check, err=True
            )
    return found


def _known(key: str) -> Callable[[str], str]:
    """Return what refuses an answer that the catalogue does not know, so that it is asked again."""
    from e2llm_opt.catalogue import catalogue

    look_up: dict[str, Callable[[str], object]] = {
        "model": catalogue.model_entry,
        "weights": catalogue.weight_format_row,
        "runtime": catalogue.runtime_row,
    }

    def check(answer: str) -> str:
        if not (key == "model" and Path(answer).is_file()):
            try:
                look_up[key](answer)
            except InputError as error:
                raise click.UsageError(str(error)) from None
        return answer

    return check
