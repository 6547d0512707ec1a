"""``e2llm-opt predict``: how fast given devices serve a model, and whether it fits."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from e2llm_opt.cli import words
from e2llm_opt.cli.problem import Amount

if TYPE_CHECKING:
    from collections.abc import Mapping

    from e2llm_opt.predict.prediction import Prediction
    from e2llm_opt.problem import Problem

_MOST_LISTED = 12
"""More devices than this are not listed for a name that is like none of them."""


class _Counts(click.ParamType):  # type: ignore[type-arg] # generic from click 8.4 on
    """``20,12``."""

    name = "number,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the numbers, or fail as a usage error."""
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in str(value).split(",")]
        if not all(part.isdecimal() for part in parts):
            self.fail(f"{value!r} is not a list of numbers such as 20,12.", param, ctx)
        return tuple(int(part) for part in parts)


@click.command("predict")
@click.option(
    "--device",
    "names",
    multiple=True,
    help="Catalogue type, or a device of --inventory; may be repeated.",
    shell_complete=words.devices_or_types,
)
@click.option(
    "--inventory",
    help="Take devices, links, model and engine from this file.",
    shell_complete=words.files,
    is_eager=True,
)
@click.option(
    "--model",
    help="Catalogue name, or path to a config.json or .gguf file.",
    shell_complete=words.catalogue("models"),
)
@click.option(
    "--weights",
    help="Weight format: f16, q8_0, q4_k_m, mxfp4, awq, fp8 ...",
    shell_complete=words.catalogue("weights"),
)
@click.option(
    "--kv-cache",
    help="Format of the KV cache: f16, q8_0 ...",
    shell_complete=words.catalogue("kv_cache"),
)
@click.option(
    "--runtime",
    help="generic, llama.cpp, vllm, sglang, prima.cpp, exo ...",
    shell_complete=words.catalogue("runtimes"),
)
@click.option("--batch", type=click.IntRange(min=1), default=1, help="Requests decoded at once.")
@click.option(
    "--context",
    type=click.IntRange(min=1),
    help="Tokens in the KV cache of each request when it decodes; prompt + 128 unless given.",
)
@click.option(
    "--prompt", type=click.IntRange(min=1), default=512, help="Prompt of the prefill [tokens]."
)
@click.option("--pipeline", is_flag=True, help="The devices share the layers of one model.")
@click.option(
    "--layers",
    type=_Counts(),
    help="Layers of each device of the pipeline, in order: 20,12; the fastest cut unless given.",
)
@click.option(
    "--bandwidth-mbit",
    type=Amount(min=0, min_open=True),
    help="Of the links between the devices [Mbit/s]; 1000 unless given.",
)
@click.option(
    "--latency-ms",
    type=Amount(min=0),
    help="Of these links, one way [ms]; 0.2 unless given.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the report.")
def command(
    names: tuple[str, ...],
    batch: int,
    context: int | None,
    prompt: int,
    pipeline: bool,
    layers: tuple[int, ...] | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Predict prefill and decode speed and memory of devices that hold a model.

    Each device on its own, or all as one pipeline with --pipeline. What does not fit into memory
    is predicted all the same, with a warning.

    \b
    Examples:
      e2llm-opt predict --device rtx-4090 --model llama-3.1-8b --weights q4_k_m
      e2llm-opt predict --device rtx-3060 --device apple-m4 --model qwen3-8b --weights q4_k_m
      e2llm-opt predict --pipeline --device rtx-3060 --device rtx-3060 --model qwen3-32b \\
        --weights q4_k_m --layers 32,32 --bandwidth-mbit 2500
      e2llm-opt predict --inventory homelab.yaml --device desktop --context 8192 --json
    """
    from e2llm_opt.plan.json_file import dump_json
    from e2llm_opt.predict.predict import predict_problem
    from e2llm_opt.report.prediction import print_predictions

    _refuse(names, options, is_pipeline=pipeline, has_layers=layers is not None)
    problem = _problem(names, options)
    rows = _rows(problem, names if options["inventory"] else ())
    found: list[Prediction] = [
        predict_problem(problem, one, batch=batch, context=context, prompt=prompt, layers=layers)
        for one in ([rows] if pipeline else [[row] for row in rows])
    ]
    if as_json:
        sys.stdout.write(dump_json({"predictions": [one.to_dict() for one in found]}))
    else:
        print_predictions(found, sys.stdout)


def _refuse(
    names: tuple[str, ...], options: Mapping[str, Any], *, is_pipeline: bool, has_layers: bool
) -> None:
    """Refuse options that have no meaning together."""
    if not names and not options["inventory"]:
        raise click.UsageError("Name a device with --device, or a file with --inventory.")
    if not options["inventory"] and options["model"] is None:
        raise click.UsageError("Missing option '--model'.")
    if has_layers and not is_pipeline:
        raise click.UsageError("--layers needs --pipeline.")
    for option in ("bandwidth_mbit", "latency_ms"):
        if options[option] is None:
            continue
        name = f"--{option.replace('_', '-')}"
        if options["inventory"]:
            raise click.UsageError(f"{name}: the links are those of --inventory.")
        if not is_pipeline:
            raise click.UsageError(f"{name} needs --pipeline.")


def _problem(names: tuple[str, ...], options: Mapping[str, Any]) -> Problem:
    """Return the devices with what they run; nothing is asked of them yet."""
    from e2llm_opt.loading.load import load_servers, problem_from_mapping
    from e2llm_opt.predict.predict import DEFAULT_BANDWIDTH_MBIT_S, DEFAULT_LATENCY_MS

    runs = ("model", "weights", "kv_cache", "runtime")
    given: dict[str, Any] = {key: options[key] for key in runs if options[key] is not None}
    given["workload"] = {"prompt_tokens": 1, "output_tokens": 1}
    if options["inventory"]:
        return load_servers(options["inventory"], given)
    given["devices"] = [
        {"name": name, "type": kind} for name, kind in zip(_unique(names), names, strict=True)
    ]
    if len(names) > 1:
        bandwidth, latency = options["bandwidth_mbit"], options["latency_ms"]
        given["links"] = [
            {
                "between": "all",
                "bandwidth_mbit_s": DEFAULT_BANDWIDTH_MBIT_S if bandwidth is None else bandwidth,
                "latency_ms": DEFAULT_LATENCY_MS if latency is None else latency,
            }
        ]
    return problem_from_mapping(given)


def _unique(names: tuple[str, ...]) -> list[str]:
    """Tell devices of one type apart by a number: rtx-3060, rtx-3060-2."""
    found: list[str] = []
    for i, name in enumerate(names):
        times = names[:i].count(name)
        found.append(f"{name}-{times + 1}" if times else name)
    return found


def _rows(problem: Problem, names: tuple[str, ...]) -> list[int]:
    """Return the rows of the devices called *names*, of all if there are none."""
    from e2llm_opt.errors import Fault, InputError
    from e2llm_opt.loading.validate import nearest

    known = [device.name for device in problem.devices]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(
            Fault(wrong=f"no device is called '{name}'", right=nearest(name, known) or _all(known))
            for name in unknown
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"--device {twice[0]}: named twice, but it is one device.")
    return [known.index(name) for name in names] or list(range(len(known)))


def _all(known: list[str]) -> str:
    return f"the inventory has {', '.join(known[:_MOST_LISTED])}"
