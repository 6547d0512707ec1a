"""What an export writes starts a real engine that does what the plan says, and stops it."""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pytest

import e2llm_opt
from tests.engine.hosts import free_port
from tests.engine.programs import ROOT, tied
from tests.engine.random_models import Shape, written
from tests.engine.scripts import is_free, left_in, running, started

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from e2llm_opt.export.exported import Export
    from e2llm_opt.plan.plan import Plan
    from tests.engine.programs import Programs
    from tests.engine.scripts import Exported

pytestmark = pytest.mark.engine

TINY: Final = Shape(name="tiny", layers=8, width=256, ffn=512, kv_heads=2, vocab=1024)
FOLDERS: Final = {"one": "one", "two words": "two-words", "drei; exit": "drei-exit"}
"""Devices, and the folders that their scripts go to."""
CUTS: Final = ({"one": 1, "two words": 7}, {"one": 1, "two words": 5, "drei; exit": 2})
"""Layers of each device."""
DOOR: Final = 8888
"""Where every front door listens."""
NUM_REQUESTS: Final = 30
NO_BYTES: Final = [[token, False] for token in range(259)]
"""A model with random weights says bytes that are no text; words are the tokens after them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A plan, what it was exported to, and the folder with that."""

    plan: Plan
    export: Export
    folder: Path

    @property
    def ports(self) -> list[int]:
        """Where anything listens, in the order of starting."""
        words = [own.argv for own in self.export.commands]
        found = [dict(pairwise(argv)) for argv in words]
        return [int(own.get("-p") or own["--port"]) for own in found]

    def are_free(self) -> bool:
        """Whether nothing listens there any more."""
        return all(map(is_free, self.ports))


def planned(
    folder: Path, devices: Mapping[str, int], rate_per_s: float = 1.0, **constraints: Any
) -> Case:
    """Plan for *devices* of loopback, each so many times as slow as others; export the plan."""
    model = written(TINY, "f16", ROOT / "build" / "engine" / "models")
    own = [
        {"name": name, "type": "raspberry-pi-5-8gb", "memory_bandwidth_gb_s": 17 / times}
        for name, times in devices.items()
    ]
    lan = {"between": list(devices), "via": "lan", "bandwidth_mbit_s": 10_000, "latency_ms": 0.01}
    inventory = {
        "runtime": "llama.cpp",
        "devices": own,
        "links": [lan],
        "model": str(model),
        "workload": {"rate_per_s": rate_per_s, "prompt_tokens": 32, "output_tokens": 8, "slots": 2}
        | {"context_tokens": 256},
        "constraints": {"use_all_devices": True, "roles": "mixed", **constraints},
    }
    file = folder / "lab.yaml"
    file.write_text(json.dumps(inventory), encoding="utf-8")  # JSON is YAML
    problem = e2llm_opt.Problem.load(file)
    plan = e2llm_opt.plan(problem)
    assert isinstance(plan, e2llm_opt.Plan), plan.reason
    options = e2llm_opt.ExportOptions(
        addresses={name: f"127.0.0.1:{free_port()}" for name in devices}, model_path=str(model)
    )
    export = e2llm_opt.export(plan, "llama.cpp", problem=problem, options=options)
    export.write(folder / "run")
    case = Case(plan=plan, export=export, folder=folder / "run")
    taken = [port for port in case.ports if not is_free(port)]
    if taken:
        pytest.skip(f"something else listens on {taken}")
    return case


def pipeline(folder: Path, layers: Mapping[str, int]) -> Case:
    """Plan one replica with so many *layers* on each device."""
    return planned(folder, dict.fromkeys(layers, 1), replicas=1, layers=dict(layers))


def ask(port: int, path: str, **body: Any) -> Any:
    """Return the answer of a server or a front door on loopback."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        link.request("POST" if body else "GET", path, json.dumps(body) if body else None)
        answer = link.getresponse()
        text = answer.read().decode()
    finally:
        link.close()
    assert answer.status == http.HTTPStatus.OK, text
    return json.loads(text)


def num_tokens(port: int, **more: Any) -> int:
    """Return how many of eight tokens come."""
    options = {"max_tokens": 8, "ignore_eos": True, "logit_bias": NO_BYTES, **more}
    answer = ask(port, "/v1/completions", prompt="hi", **options)
    assert answer["choices"][0]["text"]
    found: int = answer["usage"]["completion_tokens"]
    return found


@pytest.mark.parametrize("layers", CUTS, ids=lambda layers: f"{len(layers)} devices")
def test_every_layer_is_where_the_plan_says(
    engine: Programs, tmp_path: Path, layers: Mapping[str, int]
) -> None:
    case = pipeline(tmp_path, layers)
    with started(case.folder, engine, tmp_path / "own") as exported:
        assert num_tokens(case.ports[-1]) == 8
        exported.stop()
        found = exported.layers(exported.order[-1])
    stages = case.plan.replicas[0].stages
    assert {stage.device: stage.layers[1] - stage.layers[0] for stage in stages} == layers
    wanted = {layer: FOLDERS[own.device] for own in stages for layer in range(*own.layers)}
    assert found == wanted | {TINY.layers: FOLDERS[stages[-1].device]}  # the head is the last one
    assert case.are_free()


def test_the_benchmark_measures_the_same_cut(engine: Programs, tmp_path: Path) -> None:
    """Its output is JSON only, although it starts the worker of its own folder."""
    case = pipeline(tmp_path, CUTS[1])
    with started(case.folder, engine, tmp_path / "own", has_server=False) as exported:
        script = (str(case.folder / exported.order[-1] / "bench.sh"),)
        done = subprocess.run(
            script, env=exported.environment, capture_output=True, check=True, timeout=120
        )
        exported.stop()
    rows = json.loads(done.stdout)
    counts = [stage.layers[1] - stage.layers[0] for stage in case.plan.replicas[0].stages]
    counts[-1] += 1
    for row in rows:
        assert [float(part) for part in row["tensor_split"].split("/")] == counts
        assert row["devices"] == "RPC0/RPC1/RPC2"
        assert row["avg_ts"] > 0
    assert {(row["n_prompt"] > 0, row["n_gen"] > 0) for row in rows} == {
        (True, False),
        (False, True),
    }
    assert case.are_free()


@contextmanager
def door(case: Case, exported: Exported, program: str) -> Iterator[None]:
    """Open the front door by *program*, as its README says, until its own health check is well."""
    if shutil.which(program) is None:
        pytest.skip(f"there is no {program}")
    readme = (case.folder / "front-door" / "README.md").read_text(encoding="utf-8")
    found = {words.split()[0]: words for words in re.findall(r"`(\w+ -[^`]+)`", readme)}
    folder = case.folder if program == "nginx" else case.folder / "front-door"
    log = case.folder.parent / "own" / f"{program}.log"
    with running(shlex.split(found[program]), exported.environment, log, folder) as part:
        until = time.monotonic() + 20
        health = shlex.split(found["curl"])
        while subprocess.run(health, check=False, capture_output=True).returncode:
            assert part.process.poll() is None, part.said()
            assert time.monotonic() < until, part.said()
            time.sleep(0.1)
        yield
        os.killpg(part.process.pid, signal.SIGINT)  # Ctrl-C, as the README says
        part.await_end()


@pytest.mark.parametrize("program", ["nginx", "haproxy"])
def test_both_replicas_answer_behind_the_front_door(
    engine: Programs, tmp_path: Path, program: str
) -> None:
    """One by one, more at once than slots, one with a long text, and some when one is gone."""
    case = planned(tmp_path, {"one": 1, "two words": 4}, 60.0, replicas=2)
    if not is_free(DOOR):
        pytest.skip(f"something else listens on {DOOR}")
    assert [len(own.stages) for own in case.plan.replicas] == [1, 1]
    with started(case.folder, engine, tmp_path / "own") as exported:
        with door(case, exported, program):
            one_by_one = [num_tokens(DOOR) for _ in range(NUM_REQUESTS)]
            served = {
                name: part.said().count("stop processing")
                for name, part in exported.started.items()
            }
            with ThreadPoolExecutor(NUM_REQUESTS) as pool:
                at_once = list(pool.map(lambda _: num_tokens(DOOR), range(NUM_REQUESTS)))
            long = num_tokens(DOOR, user="x" * 2_000_000)
            exported.stop("one")
            alone = [num_tokens(DOOR, user="x" * 100_000) for _ in range(3)]
        exported.stop("two-words")
        layers = {name: exported.layers(name) for name in exported.order}
    assert {*one_by_one, *at_once, long, *alone} == {8}
    rates = {FOLDERS[r.stages[0].device]: r.arrival_rate_per_s for r in case.plan.replicas}
    print(program, served, rates)
    assert sum(served.values()) == NUM_REQUESTS
    for name, rate_per_s in rates.items():
        wanted = NUM_REQUESTS * rate_per_s / sum(rates.values())
        assert 2 < wanted < NUM_REQUESTS - 2
        assert served[name] == pytest.approx(wanted, abs=2)  # the health check was one, too
    for name, found in layers.items():
        assert set(found.values()) == {f"{name} CPU"}
    assert is_free(DOOR)
    assert case.are_free()


def test_a_server_ends_with_its_worker_and_nothing_is_left(
    engine: Programs, tmp_path: Path
) -> None:
    case = pipeline(tmp_path, CUTS[1])
    with started(case.folder, engine, tmp_path / "own") as exported:
        *workers, server = exported.order
        os.killpg(exported.started[workers[0]].process.pid, signal.SIGKILL)
        exported.started[workers[0]].await_end()
        with pytest.raises(OSError, match=r"."):
            num_tokens(case.ports[-1])
        exported.started[server].await_end()
        assert not exported.is_healthy(server)
        assert exported.is_healthy(workers[1])
        exported.stop()
    assert case.are_free()


def test_ctrl_c_ends_a_start_script_and_all_it_runs(engine: Programs, tmp_path: Path) -> None:
    case = pipeline(tmp_path, CUTS[0])
    with started(case.folder, engine, tmp_path / "own") as exported:
        for part in reversed(exported.started.values()):
            os.killpg(part.process.pid, signal.SIGINT)
            part.await_end()
        assert case.are_free()


_WAITING: Final = """
import sys, time
from pathlib import Path
from tests.engine.programs import programs
from tests.engine.scripts import started
folder = Path(sys.argv[1])
with started(folder / "run", programs(), folder / "own") as exported:
    print(*[part.process.pid for part in exported.started.values()], flush=True)
    time.sleep(0 if sys.argv[2:] else 60)
    raise ZeroDivisionError
"""


@pytest.mark.parametrize("ended_by", [None, signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_run_that_fails_or_is_ended(
    engine: Programs, tmp_path: Path, ended_by: signal.Signals | None
) -> None:
    if ended_by == signal.SIGKILL and not tied():
        pytest.skip("without setpriv, scripts outlive a run that is killed")
    case = pipeline(tmp_path, CUTS[0])
    environment = {**os.environ, "LLAMA_CPP_BIN_DIR": str(engine.bench.parent)}
    command = (sys.executable, "-c", _WAITING, str(tmp_path), *(() if ended_by else ("fail",)))
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        assert run.stdout is not None
        sessions = [int(word) for word in run.stdout.readline().split()]
        if ended_by:
            run.send_signal(ended_by)
        run.communicate(timeout=60)
    assert len(sessions) == len(CUTS[0])
    until = time.monotonic() + 20
    while ended_by == signal.SIGKILL and any(map(left_in, sessions)):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert not any(map(left_in, sessions))
    assert case.are_free()
