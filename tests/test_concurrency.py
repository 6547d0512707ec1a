"""Two plans at once give what each gives alone, in threads and processes, and leave no trace."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import e2llm_opt
from e2llm_opt import Plan, Problem, Stop

ROOT = Path(__file__).parents[1]
JOBS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("two-macs", "auto", {}),
    ("homelab", "ga", {}),
    ("homelab", "auto", {"workload": {"rate_per_s": 0.3}}),
    ("raspberry-cluster", "auto", {}),
    ("two-macs", "auto", {"weights": "f16"}),
)
"""The last one has no plan."""


def made(number: int) -> str:
    """Return the answer of a job as text, without what may differ."""
    name, method, overrides = JOBS[number]
    problem = Problem.load(ROOT / "examples" / f"{name}.yaml", **overrides)
    stop = Stop(method=method, max_evaluations=15, stagnation=2)  # type: ignore[arg-type]
    answer = e2llm_opt.plan(problem, seed=1, stop=stop)
    text = answer.to_json()
    return text[: text.index('"provenance"')] if isinstance(answer, Plan) else text


@pytest.fixture(scope="module")
def alone() -> list[str]:
    return [made(number) for number in range(len(JOBS))]


def test_plans_do_not_remember_each_other(alone: list[str]) -> None:
    order = (1, 0, 4, 1, 2, 0)
    assert [made(number) for number in order] == [alone[number] for number in order]


def test_threads_plan_side_by_side(alone: list[str]) -> None:
    """Different problems at once, and one problem twice, whose cost tables they share."""
    order = [0, 1, 2, 1, 3, 4, 0, 2]
    barrier = threading.Barrier(4, timeout=60)

    def run(number: int) -> str:
        barrier.wait()
        return made(number)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, order)) == [alone[number] for number in order]


def test_threads_share_a_problem_that_no_one_has_seen_before() -> None:
    """Its cost tables are filled by all of them at once."""
    problem = Problem.load(ROOT / "examples" / "homelab.yaml", workload={"rate_per_s": 0.123})
    barrier = threading.Barrier(4, timeout=60)

    def run(_: int) -> Plan:
        barrier.wait()
        answer = e2llm_opt.plan(problem)
        assert isinstance(answer, Plan)
        return answer

    with ThreadPoolExecutor(4) as pool:
        first, *others = pool.map(run, range(4))
    assert all(replace(other, provenance=first.provenance) == first for other in others)


def test_questions_and_answers_travel_between_processes() -> None:
    problem = Problem.load(ROOT / "examples" / "two-macs.yaml")
    assert pickle.loads(pickle.dumps(problem)) == problem  # noqa: S301 - our own
    for answer in (e2llm_opt.plan(problem), e2llm_opt.plan(replace(problem, weights="f16"))):
        assert pickle.loads(pickle.dumps(answer)) == answer  # noqa: S301


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_processes_plan_side_by_side(method: str, alone: list[str]) -> None:
    """Also forked ones, after this process has used its compiled kernels."""
    if sys.platform != "linux" and method == "fork":
        pytest.skip("fork is safe on Linux only")
    with ProcessPoolExecutor(2, mp_context=get_context(method)) as pool:
        assert list(pool.map(made, (0, 1, 2))) == alone[:3]


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def test_the_first_kernels_of_a_process_may_be_asked_for_by_two_threads() -> None:
    done = run("""
        import threading
        from e2llm_opt import Problem, plan
        problems = [Problem.load(f"examples/{n}.yaml") for n in ("two-macs", "homelab")]
        answers, barrier = {}, threading.Barrier(2)
        def work(number):
            barrier.wait()
            answers[number] = plan(problems[number])
        threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        for number, problem in enumerate(problems):
            again = plan(problem)
            assert again.replicas == answers[number].replicas
            assert again.predicted == answers[number].predicted
        """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
def test_also_where_nothing_is_compiled_yet(tmp_path: Path) -> None:
    """Two processes of two threads each, all of which compile into one empty cache."""
    program = """
        import threading
        from e2llm_opt import Problem, plan
        problem = Problem.load("examples/two-macs.yaml")
        found = []
        threads = [threading.Thread(target=lambda: found.append(plan(problem))) for _ in range(2)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        print(found[0].replicas == found[1].replicas, found[0].predicted.capacity_per_s)
        """
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: run(program, NUMBA_CACHE_DIR=str(tmp_path)), range(2)))
    assert [one.stderr for one in done] == ["", ""]
    assert done[0].stdout == done[1].stdout
    assert done[0].stdout.startswith("True")
    assert any(tmp_path.rglob("*.nbi"))


def test_a_plan_leaves_the_process_as_it_was() -> None:
    """No output, handler, filter, signal, variable, thread or random state of its own."""
    done = run("""
        import locale, logging, os, random, signal, sys, threading, warnings
        import numpy as np
        import scipy.optimize, scipy.sparse  # has filters of its own
        def state():
            loggers = list(map(logging.getLogger, logging.root.manager.loggerDict))
            return {
                "root": (logging.root.level, len(logging.root.handlers)),
                "ours": [name.name for name in loggers
                         if name.name.startswith("e2llm") and name.handlers],
                "filters": list(warnings.filters),
                "showwarning": warnings.showwarning,
                "signals": {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)},
                "environment": dict(os.environ),
                "random": random.getstate(),
                "numpy": np.random.get_state()[1].tolist(),
                "errors": np.geterr(),
                "printing": np.get_printoptions(),
                "locale": locale.setlocale(locale.LC_ALL),
                "folder": os.getcwd(),
                "threads": threading.active_count(),
                "recursion": sys.getrecursionlimit(),
                "streams": (sys.stdout, sys.stderr, sys.excepthook, sys.displayhook),
            }
        random.seed(5)
        np.random.seed(7)
        warnings.filterwarnings("error", category=DeprecationWarning, module="mine")
        before = state()
        import e2llm_opt
        assert {k: v for k, v in state().items()} == before
        problem = e2llm_opt.Problem.load("examples/homelab.yaml")
        stop = e2llm_opt.Stop(method="ga", max_evaluations=60, stagnation=3)
        found = e2llm_opt.plan(problem, stop=stop)
        assert e2llm_opt.check(found, problem).valid
        e2llm_opt.plan(e2llm_opt.Problem.load("examples/two-macs.yaml", weights="f16"))
        after = state()
        changed = [key for key in before if before[key] != after[key]]
        assert not changed, [(key, before[key], after[key]) for key in changed]
        """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
