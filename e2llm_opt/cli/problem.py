"""Options that win over the inventory file, the same for every command that reads one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar

import click

from e2llm_opt.cli import words
from e2llm_opt.constraints import MAX_SURVIVE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from e2llm_opt.problem import Problem

AnyFunction = TypeVar("AnyFunction", bound="Callable[..., Any]")


class Amount(click.FloatRange):
    """A finite number; click alone would accept NaN, which no comparison refuses."""

    name = "number"

    def convert(
        self,
        value: Any,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        """Return the number, or fail as a usage error."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class Pair(click.ParamType):  # type: ignore[type-arg] # generic from click 8.4 on
    """``name=value``."""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Return name and value, or fail as a usage error."""
        name, equals, rest = str(value).partition("=")
        if not (name.strip() and equals and rest.strip()):
            self.fail(f"{value!r} is not {self.name}.", param, ctx)
        return name.strip(), rest.strip()


_POSITIVE = Amount(min=0, min_open=True)
_COUNT = click.IntRange(min=1)
_OPTIONS: dict[str, tuple[str, ...]] = {
    "model": ("model",),
    "weights": ("weights",),
    "kv_cache": ("kv_cache",),
    "runtime": ("runtime",),
    "objective": ("objective",),
    "pessimistic": ("pessimistic",),
    "roles": ("constraints", "roles"),
    "replicas": ("constraints", "replicas"),
    "use_all_devices": ("constraints", "use_all_devices"),
    "exclude": ("constraints", "exclude"),
    "pin": ("constraints", "pin"),
    "layers": ("constraints", "layers"),
    "survive": ("constraints", "survive"),
    "tensor_parallel": ("constraints", "tensor_parallel"),
    "rate": ("workload", "rate_per_s"),
    "prompt_tokens": ("workload", "prompt_tokens"),
    "output_tokens": ("workload", "output_tokens"),
    "context_tokens": ("workload", "context_tokens"),
    "slots": ("workload", "slots"),
    "min_tokens_per_s": ("workload", "min_tokens_per_s"),
    "risk": ("workload", "risk"),
    "cvar_level": ("workload", "cvar_level"),
    "ttft": ("workload", "slo", "ttft_s"),
    "tpot": ("workload", "slo", "tpot_s"),
}
"""Option: the keys under which its value stands in an inventory file."""


def problem_options(function: AnyFunction) -> AnyFunction:
    """Add the options of this module to a command."""
    options = (
        click.option(
            "--model",
            help="Catalogue name, or path to a config.json or .gguf file.",
            shell_complete=words.catalogue("models"),
        ),
        click.option(
            "--weights",
            help="Weight format: f16, q8_0, q4_k_m, mxfp4, awq, fp8 ...",
            shell_complete=words.catalogue("weights"),
        ),
        click.option(
            "--kv-cache",
            help="Format of the KV cache: f16, q8_0 ...",
            shell_complete=words.catalogue("kv_cache"),
        ),
        click.option(
            "--runtime",
            help="generic, llama.cpp, vllm, sglang, prima.cpp, exo ...",
            shell_complete=words.catalogue("runtimes"),
        ),
        click.option(
            "--objective",
            help="waiting_time, latency, throughput, max_context or cost.",
            shell_complete=words.choice_of("objective"),
        ),
        click.option(
            "--pessimistic",
            type=Amount(min=0.5, max=1, max_open=True),
            metavar="QUANTILE",
            help="Plan on times that so many of such devices keep: 0.9 nine in ten.",
        ),
        click.option(
            "--roles",
            help="auto, disaggregated or mixed.",
            shell_complete=words.choice_of("roles"),
        ),
        click.option("--replicas", type=_COUNT, help="Exactly so many replicas."),
        click.option(
            "--use-all-devices/--leave-devices-out",
            default=None,
            help="Whether every device must hold layers.",
        ),
        click.option(
            "--exclude",
            multiple=True,
            help="Device not to use; may be repeated.",
            shell_complete=words.devices,
        ),
        click.option(
            "--pin",
            type=Pair("REPLICA=DEVICE,..."),
            multiple=True,
            help="Devices that one replica must have, such as chat=tower,laptop; may be repeated.",
        ),
        click.option(
            "--layers",
            type=Pair("DEVICE=NUMBER"),
            multiple=True,
            help="Exactly so many layers on a device; may be repeated.",
        ),
        click.option(
            "--survive",
            type=click.IntRange(min=0, max=MAX_SURVIVE),
            help="What is left is stable after any so many devices fail.",
        ),
        click.option(
            "--tensor-parallel",
            type=click.Choice(["auto", "off", "2", "4", "8"]),
            help="Devices of a host that serve one stage together.",
        ),
        click.option("--rate", type=Amount(min=0), help="Arrival rate [requests/s]."),
        click.option(
            "--prompt-tokens", "--prompt", type=_POSITIVE, help="Mean prompt length [tokens]."
        ),
        click.option("--output-tokens", type=_POSITIVE, help="Mean answer length [tokens]."),
        click.option(
            "--context-tokens",
            "--context",
            type=_COUNT,
            help="Longest request that a slot must hold [tokens].",
        ),
        click.option("--slots", type=_COUNT, help="Exactly so many slots a decoding replica."),
        click.option("--min-tokens-per-s", type=Amount(min=0), help="Least speed of a stream."),
        click.option(
            "--risk",
            help="What of the scenarios counts: expected, worst or cvar.",
            shell_complete=words.choice_of("risk"),
        ),
        click.option(
            "--cvar-level",
            type=Amount(min=0, max=1, max_open=True),
            help="cvar: the mean of the worst share above this level; 0.8: the worst fifth.",
        ),
        click.option("--ttft", type=_POSITIVE, help="Service level, time to first token [s]."),
        click.option("--tpot", type=_POSITIVE, help="Service level, time per output token [s]."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def load_problem(inventory: str, given: Mapping[str, Any]) -> Problem:
    """Read *inventory*, the options *given* winning over it.

    Raises
    ------
    InputError
        With every fault of the file and of the options.
    """
    from e2llm_opt.problem import Problem

    return Problem.load(inventory, **overrides(given))


def overrides(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were *given*, nested as in an inventory file."""
    answer: dict[str, Any] = {}
    for option, path in _OPTIONS.items():
        value = given[option]
        if value is None or value == ():
            continue
        section = answer
        for key in path[:-1]:
            section = section.setdefault(key, {})
        section[path[-1]] = _PAIRS[option](value) if option in _PAIRS else _plain(value)
    return answer


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _pins(pairs: tuple[tuple[str, str], ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for replica, devices in pairs:
        found.setdefault(replica, []).extend(name.strip() for name in devices.split(","))
    return found


def _layers(pairs: tuple[tuple[str, str], ...]) -> dict[str, int | str]:
    return {device: int(num) if num.isdecimal() else num for device, num in pairs}


_PAIRS = {"pin": _pins, "layers": _layers}
