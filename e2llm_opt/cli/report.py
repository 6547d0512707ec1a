"""``e2llm-opt report``: a plan as a page and as pictures."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from e2llm_opt.cli import words
from e2llm_opt.cli.progress import progress_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2llm_opt.check.verdict import Report
    from e2llm_opt.pareto.front import Front
    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.problem import Problem


@click.command("report")
@click.argument("plan", shell_complete=words.files)
@click.argument("inventory", required=False, shell_complete=words.files)
@click.option(
    "-o",
    "--output",
    default="plan.html",
    show_default=True,
    help="The page; - prints it.",
    shell_complete=words.files,
)
@click.option(
    "--figures",
    metavar="DIR",
    help="Write the pictures as SVG and PNG into this folder, too.",
    shell_complete=words.files,
)
@click.option(
    "--front",
    "front_file",
    metavar="FILE",
    help="Show the trade-offs of this front, which pareto --json wrote, and the plan in it.",
    shell_complete=words.files,
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
def command(
    plan: str,
    inventory: str | None,
    output: str,
    figures: str | None,
    front_file: str | None,
    quiet: bool,
) -> None:
    """Show PLAN, a JSON file, as one self-contained HTML page.

    With INVENTORY, which the plan was made for, the page has the load of every link, and the
    inventory to copy. A plan that was made with options is shown with its own figures.

    \b
    Examples:
      e2llm-opt report plan.json
      e2llm-opt report plan.json homelab.yaml -o plan.html
      e2llm-opt report plan.json homelab.yaml --figures pictures
      e2llm-opt report front/plan-03.json --front front/front.json
    """
    from e2llm_opt.plan.json_file import load_plan
    from e2llm_opt.plan.output import refuse_unwritable, write_text_atomically
    from e2llm_opt.report.page import plan_page
    from e2llm_opt.report.pictures import write_figures
    from e2llm_opt.text_file import read_text

    found = load_plan(plan)
    front = None if front_file is None else _front(found, front_file)
    if output != "-":
        refuse_unwritable(output)
    with progress_line(sys.stderr, quiet=quiet, doing="drawing the plan"):
        problem, report, hosts, texts = None, None, {}, []
        if inventory is not None:
            problem, report = _checked(found, inventory)
            hosts = {device.name: device.host for device in problem.devices}
            texts.append(("Inventory", read_text(inventory)))
            if not report.valid:  # made with other options: export what the plan itself says
                problem = None
        texts += [*_engine_commands(found, problem), ("What else", _commands(plan, inventory))]
        page = plan_page(found, report, hosts=hosts, texts=texts, front=front)
        written = () if figures is None else write_figures(found, figures, report, hosts)
    if output == "-":
        sys.stdout.write(page)
        return
    write_text_atomically(output, page)
    if not quiet:
        click.echo("\n".join(["wrote " + output, *(f"wrote {path}" for path in written)]))


def _front(plan: Plan, file: str) -> Front:
    """Return the front of a file.

    Raises
    ------
    InputError
        When it is none, or of other devices and links than the plan's.
    """
    from e2llm_opt.errors import Fault, InputError
    from e2llm_opt.pareto.front import load_front

    front = load_front(file)
    if front.plans[0].problem.inventory_sha256 != plan.problem.inventory_sha256:
        wrong = "this front is of other devices and links than the plan"
        raise InputError([Fault(file=file, wrong=wrong, right="make it anew, or leave it out")])
    return front


def _checked(plan: Plan, inventory: str) -> tuple[Problem, Report]:
    """Return the problem of the file, and what the checker finds at the plan's own workload.

    Raises
    ------
    InputError
        When the file has faults, or is not the inventory of the plan.
    """
    from e2llm_opt.check.check import check
    from e2llm_opt.errors import Fault, InputError
    from e2llm_opt.inventory.digest import inventory_sha256
    from e2llm_opt.problem import Problem

    problem = Problem.load(inventory)
    if inventory_sha256(problem.inventory) != plan.problem.inventory_sha256:
        wrong = "these are not the devices and links that the plan was made for"
        raise InputError([Fault(file=inventory, wrong=wrong, right="plan anew, or leave it out")])
    return problem, check(plan, problem)


def _commands(plan: str, inventory: str | None) -> str:
    import shlex

    file = inventory or "INVENTORY.yaml"
    given, asked = shlex.quote(plan), shlex.quote(file)
    return "\n".join(
        (
            f"e2llm-opt check {given} {asked}",
            f"e2llm-opt simulate {given} {asked}",
            f"e2llm-opt explain {given}",
        )
    )


def _engine_commands(plan: Plan, problem: Problem | None) -> Iterator[tuple[str, str]]:
    """Yield what starts the plan on its own engine, where that is one that can be told."""
    import shlex

    from e2llm_opt.export.engines import ENGINES
    from e2llm_opt.export.export import export

    engine = plan.problem.runtime
    if engine not in ENGINES:
        return
    found = export(plan, engine, problem=problem)
    if found.not_expressible is not None:
        yield f"Commands of {engine}", f"# {engine} cannot run this plan: {found.not_expressible}"
        return
    lines = []
    for own in found.commands:
        env = [f"{name}={shlex.quote(value)}" for name, value in own.env.items()]
        lines += [f"# on {own.device}", " ".join([*env, shlex.join(own.argv)])]
    yield f"Commands of {engine}", "\n".join(lines)
