"""Placement of large language models on unequal machines: replicas, roles, layers and routes.

    inventory.yaml ─────► Inventory ─┐
    config.json, .gguf ─► Model ─────┼─► Problem ─► cost tables ─► partition (kernels) ─┐
    workload, trace ────► Workload ──┘                   ▲   search (genetic, exact) ◄──┘
                                                         └── Plan ─► check · report
                                                                  └─► simulate · compare · export
    Plan, a changed Problem ─► replan ─► the next Plan, and the moves to it
    measured speeds ─► calibrate ─► a better Inventory
    sweep file ─► many Problems ─► workers (this machine, a cluster) ─► one table

The public names below are loaded on first use, so that ``import e2llm_opt`` is instant.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from e2llm_opt.adapt.caution import Caution as Caution
    from e2llm_opt.adapt.controller import Controller as Controller
    from e2llm_opt.adapt.controller import Decision as Decision
    from e2llm_opt.adapt.regime import Regime as Regime
    from e2llm_opt.adapt.repertoire import Repertoire as Repertoire
    from e2llm_opt.adapt.repertoire import repertoire as repertoire
    from e2llm_opt.advise.advice import Advice as Advice
    from e2llm_opt.advise.advice import AdviceRow as AdviceRow
    from e2llm_opt.advise.advice import AdviceTerms as AdviceTerms
    from e2llm_opt.advise.advise import advise as advise
    from e2llm_opt.advise.network import Wire as Wire
    from e2llm_opt.advise.size import size as size
    from e2llm_opt.advise.sizing import Sizing as Sizing
    from e2llm_opt.advise.sizing import SizingTarget as SizingTarget
    from e2llm_opt.advise.sizing import Unreachable as Unreachable
    from e2llm_opt.calibrate.calibrate import calibrate as calibrate
    from e2llm_opt.calibrate.calibration import Calibration as Calibration
    from e2llm_opt.calibrate.write import write_calibration as write_calibration
    from e2llm_opt.check.check import check as check
    from e2llm_opt.check.verdict import Report as Report
    from e2llm_opt.check.verdict import Violation as Violation
    from e2llm_opt.compare import ComparisonRow as ComparisonRow
    from e2llm_opt.compare import ComparisonTerms as ComparisonTerms
    from e2llm_opt.compare import compare as compare
    from e2llm_opt.constraints import Constraints as Constraints
    from e2llm_opt.errors import E2LLMError as E2LLMError
    from e2llm_opt.errors import Fault as Fault
    from e2llm_opt.errors import InputError as InputError
    from e2llm_opt.export.export import export as export
    from e2llm_opt.export.exported import Export as Export
    from e2llm_opt.export.exported import ExportCommand as ExportCommand
    from e2llm_opt.export.options import ExportOptions as ExportOptions
    from e2llm_opt.failures.answer import Failures as Failures
    from e2llm_opt.failures.failures import FailureTerms as FailureTerms
    from e2llm_opt.failures.failures import failures as failures
    from e2llm_opt.inventory.device import Device as Device
    from e2llm_opt.inventory.device import MemoryKind as MemoryKind
    from e2llm_opt.inventory.device import device_of_type as device_of_type
    from e2llm_opt.inventory.inventory import Inventory as Inventory
    from e2llm_opt.inventory.link import Link as Link
    from e2llm_opt.loading.measurements import Measurement as Measurement
    from e2llm_opt.loading.measurements import Readings as Readings
    from e2llm_opt.loading.measurements import read_measurements as read_measurements
    from e2llm_opt.model.facts import ModelFacts as ModelFacts
    from e2llm_opt.model.model import Model as Model
    from e2llm_opt.model.named import model_facts as model_facts
    from e2llm_opt.pareto.front import Front as Front
    from e2llm_opt.pareto.front import load_front as load_front
    from e2llm_opt.pareto.pareto import pareto as pareto
    from e2llm_opt.partition.partition import Partition as Partition
    from e2llm_opt.partition.partition import partition as partition
    from e2llm_opt.plan.infeasible import Infeasible as Infeasible
    from e2llm_opt.plan.json_file import load_plan as load_plan
    from e2llm_opt.plan.plan import Plan as Plan
    from e2llm_opt.plan.plan import Replica as Replica
    from e2llm_opt.plan.plan import Route as Route
    from e2llm_opt.plan.plan import Stage as Stage
    from e2llm_opt.planners import PLANNERS as PLANNERS
    from e2llm_opt.predict.predict import predict as predict
    from e2llm_opt.predict.predict import predict_problem as predict_problem
    from e2llm_opt.predict.prediction import Prediction as Prediction
    from e2llm_opt.problem import Objective as Objective
    from e2llm_opt.problem import Problem as Problem
    from e2llm_opt.problem import Role as Role
    from e2llm_opt.provenance import Provenance as Provenance
    from e2llm_opt.replan.answer import Move as Move
    from e2llm_opt.replan.answer import Replan as Replan
    from e2llm_opt.replan.replan import replan as replan
    from e2llm_opt.replan.terms import ReplanTerms as ReplanTerms
    from e2llm_opt.runtime import Runtime as Runtime
    from e2llm_opt.runtime import runtime as runtime
    from e2llm_opt.search.islands import Islands as Islands
    from e2llm_opt.search.progress import Progress as Progress
    from e2llm_opt.search.rank_by_simulation import Finals as Finals
    from e2llm_opt.search.stop import Stop as Stop
    from e2llm_opt.simulate.changes import Changes as Changes
    from e2llm_opt.simulate.changes import Failure as Failure
    from e2llm_opt.simulate.simulate import Simulation as Simulation
    from e2llm_opt.simulate.simulate import simulate as simulate
    from e2llm_opt.solve import plan as plan
    from e2llm_opt.solve import plans as plans
    from e2llm_opt.speed import Phase as Phase
    from e2llm_opt.sweep.sweep import SweepProgress as SweepProgress
    from e2llm_opt.sweep.sweep import sweep as sweep
    from e2llm_opt.sweep.table import SweepRow as SweepRow
    from e2llm_opt.workload.arrivals import draw_arrivals as draw_arrivals
    from e2llm_opt.workload.scenarios import Risk as Risk
    from e2llm_opt.workload.scenarios import Scenario as Scenario
    from e2llm_opt.workload.trace import Trace as Trace
    from e2llm_opt.workload.trace import read_trace as read_trace
    from e2llm_opt.workload.workload import Lengths as Lengths
    from e2llm_opt.workload.workload import Workload as Workload

__version__ = "0.1.0"

_HOME = {
    "Advice": "advise.advice",
    "AdviceRow": "advise.advice",
    "AdviceTerms": "advise.advice",
    "Calibration": "calibrate.calibration",
    "Caution": "adapt.caution",
    "Changes": "simulate.changes",
    "ComparisonRow": "compare",
    "ComparisonTerms": "compare",
    "Constraints": "constraints",
    "Controller": "adapt.controller",
    "Decision": "adapt.controller",
    "Device": "inventory.device",
    "E2LLMError": "errors",
    "Export": "export.exported",
    "ExportCommand": "export.exported",
    "ExportOptions": "export.options",
    "Failure": "simulate.changes",
    "FailureTerms": "failures.failures",
    "Failures": "failures.answer",
    "Fault": "errors",
    "Finals": "search.rank_by_simulation",
    "Front": "pareto.front",
    "Infeasible": "plan.infeasible",
    "InputError": "errors",
    "Inventory": "inventory.inventory",
    "Islands": "search.islands",
    "Lengths": "workload.workload",
    "Link": "inventory.link",
    "Measurement": "loading.measurements",
    "MemoryKind": "inventory.device",
    "Model": "model.model",
    "ModelFacts": "model.facts",
    "Move": "replan.answer",
    "Objective": "problem",
    "PLANNERS": "planners",
    "Partition": "partition.partition",
    "Phase": "speed",
    "Plan": "plan.plan",
    "Prediction": "predict.prediction",
    "Problem": "problem",
    "Progress": "search.progress",
    "Provenance": "provenance",
    "Readings": "loading.measurements",
    "Regime": "adapt.regime",
    "Repertoire": "adapt.repertoire",
    "Replan": "replan.answer",
    "ReplanTerms": "replan.terms",
    "Replica": "plan.plan",
    "Report": "check.verdict",
    "Risk": "workload.scenarios",
    "Role": "problem",
    "Route": "plan.plan",
    "Runtime": "runtime",
    "Scenario": "workload.scenarios",
    "Simulation": "simulate.simulate",
    "Sizing": "advise.sizing",
    "SizingTarget": "advise.sizing",
    "Stage": "plan.plan",
    "Stop": "search.stop",
    "SweepProgress": "sweep.sweep",
    "SweepRow": "sweep.table",
    "Trace": "workload.trace",
    "Unreachable": "advise.sizing",
    "Violation": "check.verdict",
    "Wire": "advise.network",
    "Workload": "workload.workload",
    "advise": "advise.advise",
    "calibrate": "calibrate.calibrate",
    "check": "check.check",
    "compare": "compare",
    "device_of_type": "inventory.device",
    "draw_arrivals": "workload.arrivals",
    "export": "export.export",
    "load_front": "pareto.front",
    "failures": "failures.failures",
    "load_plan": "plan.json_file",
    "model_facts": "model.named",
    "pareto": "pareto.pareto",
    "partition": "partition.partition",
    "plan": "solve",
    "plans": "solve",
    "predict": "predict.predict",
    "predict_problem": "predict.predict",
    "read_measurements": "loading.measurements",
    "read_trace": "workload.trace",
    "repertoire": "adapt.repertoire",
    "replan": "replan.replan",
    "runtime": "runtime",
    "simulate": "simulate.simulate",
    "size": "advise.size",
    "sweep": "sweep.sweep",
    "write_calibration": "calibrate.write",
}
"""Public name: the module below this package that defines it."""

__all__ = ["__version__", *_HOME]


class _Package(ModuleType):
    """Makes ``plan``, ``check``, ``simulate`` and others alike the functions, not the modules.

    Importing a module of the same name would bind it here, and whether ``e2llm_opt.plan`` is a
    function would depend on what was imported before.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name in _HOME and isinstance(value, ModuleType):
            return
        super().__setattr__(name, value)


if not TYPE_CHECKING:  # else a misspelt name would be Any

    def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public object
        if name not in _HOME:
            message = f"module '{__name__}' has no attribute '{name}'"
            raise AttributeError(message)
        value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)


sys.modules[__name__].__class__ = _Package
