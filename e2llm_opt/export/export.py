"""A plan put into an engine's words: check, address, ask the engine's exporter, write it down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from e2llm_opt.errors import Fault, InputError
from e2llm_opt.export.engines import engine_named, exporter
from e2llm_opt.export.exported import NEAREST, Export, ExportCommand
from e2llm_opt.export.front_door import front_door
from e2llm_opt.export.guide import device_readme, passenger_readme, readme
from e2llm_opt.export.options import ExportOptions
from e2llm_opt.export.refusal import NotExpressibleError
from e2llm_opt.export.rules import broken_rules, refuse_malformed
from e2llm_opt.export.scripts import health_script, start_script, stop_script
from e2llm_opt.export.setup import setup_of
from e2llm_opt.plan.plan import PLAN_SCHEMA, Plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2llm_opt.check.verdict import Report, Violation
    from e2llm_opt.export.guide import Folders
    from e2llm_opt.export.process import Launch
    from e2llm_opt.export.setup import Setup
    from e2llm_opt.problem import Problem

_SAME_RULES = {"dynamo": "vllm", "llm-d": "vllm", "ray-serve": "vllm"}
"""Engines that run another one inside."""


def export(
    plan: Plan | Mapping[str, Any],
    to: str,
    *,
    problem: Problem | None = None,
    options: ExportOptions | None = None,
) -> Export:
    """Return what starts *plan* on a real engine.

    Parameters
    ----------
    plan
        A plan or its JSON document; with *problem* also one that a person wrote.
    to
        Name of the engine, such as ``llama.cpp`` or ``vllm``.
    problem
        What the plan is an answer to: then the plan is checked against it, and hosts and kinds
        of devices are known.
    options
        Addresses, model files and the like.

    Returns
    -------
    Export
        Files and commands, or ``not_expressible`` with the reason.

    Raises
    ------
    InputError
        When the engine is unknown, the document is no plan of this version, the plan breaks a
        rule (each violation is a fault), or the options name something that is not there.

    Examples
    --------
    >>> export(plan, "llama.cpp").commands[0].argv  # doctest: +SKIP
    ('ggml-rpc-server', '-H', 'tower', '-p', '50052', '-c')
    """
    engine = engine_named(to)
    found, violations = checked(plan, problem)
    if found is None or violations:
        raise InputError(_as_fault(violation) for violation in violations)
    return export_checked(found, engine, problem, options or ExportOptions())


def export_checked(
    plan: Plan, engine: str, problem: Problem | None, options: ExportOptions
) -> Export:
    """Return what starts a plan that :func:`checked` found nothing wrong with.

    Parameters
    ----------
    engine
        A key of :data:`e2llm_opt.export.engines.ENGINES`.
    """
    setup = setup_of(plan, options, problem)
    try:
        launch = exporter(engine)(setup)
    except NotExpressibleError as refusal:
        files = {NEAREST: refusal.nearest} if refusal.nearest else {}
        return Export(
            engine=engine, files=files, not_expressible=str(refusal), warnings=setup.warnings
        )
    warnings = (*launch.warnings, *setup.warnings, *_other_runtime(engine, plan))
    launch = replace(launch, warnings=tuple(dict.fromkeys(warnings)))
    return Export(
        engine=engine,
        files=dict(_files(engine, setup, launch)),
        commands=tuple(
            ExportCommand(device=own.device, argv=own.argv, env=dict(own.env))
            for own in launch.processes
        ),
        warnings=launch.warnings,
    )


def checked(
    plan: Plan | Mapping[str, Any], problem: Problem | None
) -> tuple[Plan | None, tuple[Violation, ...]]:
    """Return the plan, complete, and what is wrong with it.

    None where a plan written by hand breaks a rule, so that its figures are not known.

    Raises
    ------
    InputError
        When the document is no plan of this version.
    """
    from e2llm_opt.check.complete import completed  # noqa: PLC0415 - slow to import
    from e2llm_opt.plan.json_file import plan_from_dict  # noqa: PLC0415 - the same

    is_by_hand = isinstance(plan, Mapping) and _is_by_hand(plan)
    if is_by_hand and problem is None:
        right = "give the inventory that it was written for (--inventory)"
        raise InputError([Fault(wrong="the plan has only replicas", right=right)])
    report = None if problem is None else _report(plan, problem)
    if is_by_hand and report is not None and problem is not None:
        if not report.valid:
            return None, report.violations
        found = completed(report, problem)
    else:
        found = plan if isinstance(plan, Plan) else plan_from_dict(plan)
    refuse_malformed(found)
    violations = broken_rules(found) if report is None or report.valid else report.violations
    return found, violations


def _is_by_hand(document: Mapping[str, Any]) -> bool:
    """Whether a person wrote a plan of this version: replicas, and nothing of what was asked."""
    is_ours = document.get("schema", PLAN_SCHEMA) == PLAN_SCHEMA
    return is_ours and "replicas" in document and not {"problem", "predicted"} & set(document)


def _report(plan: Plan | Mapping[str, Any], problem: Problem) -> Report:
    from e2llm_opt.check.check import check  # noqa: PLC0415 - slow to import

    # A plan may be started at any rate, so that its claim to be stable is not looked at.
    return check(plan, replace(problem, workload=replace(problem.workload, rate_per_s=0.0)))


def _as_fault(violation: Violation) -> Fault:
    place = f" ({violation.device})" if violation.device else ""
    return Fault(
        path="plan",
        wrong=f"{violation.what}{place}",
        right=f"need {violation.need}, have {violation.have}",
    )


def _other_runtime(engine: str, plan: Plan) -> Iterator[str]:
    planned = plan.problem.runtime
    if engine != "kubernetes" and planned != _SAME_RULES.get(engine, engine):
        yield (
            f"the plan was made for the runtime {planned}: its memory and speeds may not hold on "
            f"{engine}; plan again with --runtime {_SAME_RULES.get(engine, engine)}"
        )


def _files(engine: str, setup: Setup, launch: Launch) -> Iterator[tuple[str, str]]:
    folders: Folders = {}
    for process in launch.processes:
        folders.setdefault(process.folder, []).append(process)
    if launch.has_scripts:
        yield from _scripts(setup, folders)
    door = front_door(launch.endpoints)
    shown = folders if launch.has_scripts else {}
    yield "README.md", readme(engine, setup, launch, shown, has_door=bool(door))
    yield from door.items()
    yield from launch.files.items()


def _scripts(setup: Setup, folders: Folders) -> Iterator[tuple[str, str]]:
    for folder, own in folders.items():
        yield f"{folder}/start.sh", start_script(own)
        yield f"{folder}/health.sh", health_script(own)
        yield f"{folder}/stop.sh", stop_script()
        yield f"{folder}/README.md", device_readme(folder, own, list(folders))
    drivers = {own[0].host: own[0] for own in folders.values() if own[0].stage is not None}
    for replica in setup.replicas:
        for stage in replica.devices:
            if stage.folder not in folders:
                driver = drivers[stage.host]
                yield f"{stage.folder}/README.md", passenger_readme(stage, driver)
