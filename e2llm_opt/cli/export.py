"""``e2llm-opt export``: a plan as commands and files that start a real engine."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from e2llm_opt.cli import words
from e2llm_opt.cli.group import EXIT_NO
from e2llm_opt.cli.names import Pair
from e2llm_opt.cli.problem import load_problem, problem_options
from e2llm_opt.errors import InputError

if TYPE_CHECKING:
    from e2llm_opt.check.verdict import Report
    from e2llm_opt.export.options import ExportOptions
    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.problem import Problem


@click.command("export")
@click.argument("plan", shell_complete=words.files)
@click.option(
    "--to",
    "engine",
    required=True,
    help="Engine: llama.cpp, vllm, sglang, prima.cpp, exo, parallax, petals, distributed-llama, "
    "kubernetes, dynamo, llm-d or ray-serve.",
    shell_complete=words.engines,
)
@click.option("-o", "--out", help="Write all files into this new folder.")
@click.option("--force", is_flag=True, help="Replace what an earlier export wrote there.")
@click.option(
    "--inventory",
    help="Check the plan against this file first, and take hosts and kinds of devices from it.",
    shell_complete=words.files,
)
@click.option(
    "--address",
    type=Pair("DEVICE=HOST[:PORT]", "tower=192.168.1.7"),
    multiple=True,
    help="Where a device is; may be repeated.",
)
@click.option(
    "--engine-device",
    type=Pair("DEVICE=NAME", "tower=CUDA1"),
    multiple=True,
    help="What the engine calls a device on its own host: CUDA1, MTL0, CPU; may be repeated.",
)
@click.option("--model-path", default="", help="File, folder or Hugging Face name of the model.")
@click.option("--tokenizer-path", default="", help="Tokenizer file, for distributed-llama.")
@click.option("--image", default="", help="Container image, for engines that run in containers.")
@click.option(
    "--dynamo-api",
    type=click.Choice(["v1alpha1", "v1beta1"]),
    default="v1alpha1",
    help="Form of Dynamo's resource; v1alpha1 unless given.",
)
@click.option("--json", "as_json", is_flag=True, help="Print files and commands as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print no report.")
@problem_options
def command(
    plan: str,
    engine: str,
    out: str | None,
    force: bool,
    inventory: str | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Turn PLAN, a JSON file, into what starts it on a real engine.

    A folder a device: scripts to start, check and stop it, and a README that says what to run
    where and in which order. What the engine cannot express is refused with the reason and, where
    there is one, the nearest plan (exit code 3). Options of the problem count with --inventory.

    \b
    Examples:
      e2llm-opt export plan.json --to llama.cpp --out run
      e2llm-opt export plan.json --to llama.cpp --inventory homelab.yaml --out run \\
        --address desktop=10.0.0.2 --model-path /models/llama-3.1-8b-q4_k_m.gguf
      e2llm-opt export plan.json --to vllm --json
      e2llm-opt export plan.json --to kubernetes --out k8s --force
    """
    from e2llm_opt.export.engines import engine_named
    from e2llm_opt.export.export import export_checked
    from e2llm_opt.export.folder import refuse_folder
    from e2llm_opt.plan.json_file import dump_json
    from e2llm_opt.report.export import print_export
    from e2llm_opt.report.refusals import print_check

    engine = engine_named(engine)
    if out is not None:
        refuse_folder(out, force=force)
    problem = None if inventory is None else load_problem(inventory, options)
    found, report = _checked(plan, problem)
    if found is None:
        if as_json:
            sys.stdout.write(dump_json(report.to_dict()))
        elif not quiet:
            print_check(report, sys.stdout)
        click.get_current_context().exit(EXIT_NO)
    answer = export_checked(found, engine, problem, _given(options))
    if out is not None and answer.not_expressible is None:
        answer.write(out, force=force)
    if as_json:
        sys.stdout.write(answer.to_json())
    elif not quiet:
        print_export(answer, out, sys.stdout)
    if answer.not_expressible is not None:
        click.get_current_context().exit(EXIT_NO)


def _given(options: dict[str, Any]) -> ExportOptions:
    from e2llm_opt.export.options import ExportOptions

    return ExportOptions(
        model_path=options["model_path"],
        tokenizer_path=options["tokenizer_path"],
        addresses=dict(options["address"]),
        engine_devices=dict(options["engine_device"]),
        image=options["image"],
        dynamo_api=options["dynamo_api"],
    )


def _checked(path: str, problem: Problem | None) -> tuple[Plan | None, Report]:
    """Return the plan, complete, and what is wrong with it; None where something is."""
    from e2llm_opt.check.verdict import Report
    from e2llm_opt.export.export import checked
    from e2llm_opt.plan.json_file import read_json_document

    document = read_json_document(path)
    try:
        found, violations = checked(document, problem)
    except InputError as error:
        raise InputError(replace(fault, file=path) for fault in error.faults) from None
    report = Report(violations=violations, replicas=(), routes=(), links=(), capacity_per_s=None)
    return (None if violations else found), report
