"""No text of a plan or of an option is ever run, in whatever field it stands."""

from __future__ import annotations

import re
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from e2llm_opt import export
from e2llm_opt.errors import InputError
from e2llm_opt.export.engines import ENGINES
from e2llm_opt.export.options import ExportOptions
from tests.export.plans import NASTY, plan, replica
from tests.export.shims import NUMERIC, is_valid_bash, machine
from tests.export.test_round_trip import WEIGHTS

if TYPE_CHECKING:
    from pathlib import Path

    from e2llm_opt.export.exported import Export, ExportCommand
    from e2llm_opt.export.process import Process
    from e2llm_opt.plan.plan import Plan
    from tests.export.shims import Call

EVIL = [name for name in NASTY if len(name) < 100]
PEER = "/ip4/1.2.3.4/tcp/1/p2p/X"
GGUF = ("llama.cpp", "prima.cpp")


def evil_plan(text: str, engine: str, roles: tuple[str, ...] = ("MIXED", "MIXED")) -> Plan:
    """Return a plan that has *text* in every field that is a text."""
    counts = (4, 4)
    made = [
        replica(f"{text}{i}", role, [(f"{text}{i}{j}", n) for j, n in enumerate(counts)])
        for i, role in enumerate(roles)
    ]
    found = plan(*made, weights=WEIGHTS.get(engine, "f16"), model=text, runtime=text)
    return replace(
        found,
        warnings=(text,),
        explain=(text,),
        provenance=replace(found.provenance, e2llm_opt=text, created=text),
    )


def evil_options(text: str, engine: str) -> ExportOptions:
    path = f"/models/{text}.gguf" if engine in GGUF else f"/models/{text}"
    # `-dev a,b` is a list: a name with a comma would be two, in llama.cpp itself.
    return ExportOptions(
        model_path=path,
        tokenizer_path=f"/models/{text}.t",
        engine_devices={f"{text}01": f"{text}0"},
        image=text,
    )


def exports(text: str, engine: str) -> list[Export]:
    """Return three exports; llm-d refuses what Helm would run as a template."""
    if engine == "llm-d" and "{{" in text:
        refused = export(evil_plan(text, engine), engine)
        assert refused.not_expressible is not None
        assert refused.not_expressible.startswith("template braces")
        return []
    found = [export(evil_plan(text, engine), engine)]
    found.append(export(evil_plan(text, engine), engine, options=evil_options(text, engine)))
    found.append(export(evil_plan(text, engine, ("PREFILL", "DECODE")), engine))
    assert all(own.not_expressible is None for own in found), found[0].not_expressible
    return found


@pytest.mark.parametrize("engine", ENGINES)
def test_every_script_is_bash_and_every_document_is_yaml(engine: str) -> None:
    scripts = []
    for answer in (one for text in EVIL for one in exports(text, engine)):
        for name, content in answer.files.items():
            assert re.fullmatch(r"[A-Za-z0-9._/-]+", name), name
            assert ".." not in name.split("/")
            if name.endswith(".sh"):
                assert content.startswith("#!/usr/bin/env bash\n")
                assert "\nset -euo pipefail\n" in content
                scripts.append(f"(\n{content}\n)")
            if name.endswith(".yaml"):
                assert all(yaml.load_all(content, yaml.CSafeLoader))
    assert is_valid_bash("\n".join(scripts))


@pytest.mark.parametrize(
    "engine", [e for e in ENGINES if e not in {"kubernetes", "dynamo", "llm-d"}]
)
@pytest.mark.parametrize("text", ["a\ntouch PWNED\n", "'; touch PWNED; $(touch PWNED) \"\\"])
def test_scripts_run_nothing_but_their_command_with_its_very_words(
    text: str, engine: str, tmp_path: Path
) -> None:
    shims = machine(tmp_path)
    for number, answer in enumerate(exports(text, engine)[1:]):
        folder = tmp_path / f"run-{number}"
        answer.write(folder)
        started = [
            call
            for script in sorted(folder.glob("*/start.sh"))
            for call in shims.run(script, INITIAL_PEERS=PEER)
        ]
        for own in answer.commands:
            started.remove(next(call for call in started if is_call_of(call, own)))
        assert not started


def test_a_folder_with_two_processes_starts_the_second_once_the_first_listens(
    tmp_path: Path,
) -> None:
    """A last stage on a CPU is a worker of the server beside it, and ends with it."""
    shims = machine(tmp_path)
    shims.listens("ggml-rpc-server")
    text = "it's; touch PWNED"
    options = ExportOptions(engine_devices={f"{text}01": "CPU"})
    answer = export(evil_plan(text, "llama.cpp"), "llama.cpp", options=options)
    answer.write(tmp_path / "run")
    (worker, server) = [own for own in answer.commands if own.device == f"{text}01"]
    (folder,) = {name.split("/")[0] for name, t in answer.files.items() if "pids+=" in t}
    calls = shims.run(tmp_path / "run" / folder / "start.sh")
    assert len(calls) == 2
    assert is_call_of(calls[0], worker)
    assert is_call_of(calls[1], server)
    with socket.socket() as probe:
        port = int(worker.argv[worker.argv.index("-p") + 1])
        assert probe.connect_ex(("127.0.0.1", port)) != 0, "it ended with the server"


def is_call_of(call: Call, command: ExportCommand) -> bool:
    """Whether a program was called so, but for addresses that only its machine knows."""
    return (
        len(call.argv) == len(command.argv)
        and all(a in {b, NUMERIC, PEER} for a, b in zip(call.argv, command.argv, strict=True))
        and set(command.env.items()) <= set(call.env.items())
    )


@pytest.mark.parametrize("engine", ["kubernetes", "dynamo", "llm-d", "ray-serve"])
@pytest.mark.parametrize("text", ["'; touch PWNED; $(touch PWNED)"])
def test_the_scripts_around_containers_only_call_their_programs(
    text: str, engine: str, tmp_path: Path
) -> None:
    shims = machine(tmp_path)
    for number, answer in enumerate(exports(text, engine)):
        folder = tmp_path / f"run-{number}"
        answer.write(folder)
        for script in folder.glob("*.sh"):
            for call in shims.run(script):
                assert call.argv[0] in {"kubectl", "helm", "serve"}
                assert "PWNED" not in " ".join(call.argv)


@pytest.mark.parametrize("text", ["$(id)", "$HOME", "$$(POD_IP)", "$(POD_IP)$", "'; x"])
def test_kubernetes_expands_nothing_in_the_words_of_a_plan(text: str) -> None:
    """Kubernetes replaces $(NAME) in commands; a doubled dollar is one dollar."""
    for answer in exports(text, "kubernetes"):
        by_name = {}
        for one in yaml.safe_load_all(answer.files["manifests.yaml"]):
            if one["kind"] == "Deployment" and "e2llm/replica" in one["metadata"]["labels"]:
                labels = one["metadata"]["labels"]
                container = one["spec"]["template"]["spec"]["containers"][0]
                place = labels["e2llm/replica"], labels["e2llm/stage"]
                by_name[place] = [expanded(word) for word in container["command"]]
        commands = [own.argv[1:] for own in answer.commands]
        for words in by_name.values():
            assert any(
                len(words[1:]) == len(argv)
                and all(a in {b, "POD"} for a, b in zip(words[1:], argv, strict=True))
                for argv in commands
            ), words


def expanded(word: str) -> str:
    """Expand as Kubernetes does (third_party/forked/golang/expansion), POD_IP being known."""
    found, i = "", 0
    while i < len(word):
        if word[i] != "$" or i + 1 == len(word):
            found += word[i]
            i += 1
        elif word[i + 1] == "$":
            found += "$"
            i += 2
        elif word[i + 1] == "(" and ")" in word[i:]:
            name = word[i + 2 : word.index(")", i)]
            assert name == "POD_IP", f"{word} asks for {name}"
            found += "POD"
            i = word.index(")", i) + 1
        else:
            found += word[i : i + 2]
            i += 2
    return found


@pytest.mark.parametrize(
    "address",
    [
        "",
        "a b",
        "$(id)",
        "a;b",
        "10.0.0.2:",
        "10.0.0.2:99999",
        "host:0",
        "-x",
        "a\nb",
        "[::1",
        "::g",
        "host:\uff11",
        "a_b",
        "x" * 64,
        "fe80::1%eth0",
        "http://x",
        "a/b",
    ],
)
def test_an_address_is_an_address_or_refused(address: str) -> None:
    with pytest.raises(InputError, match="is no address"):
        ExportOptions(addresses={"tower": address})


@pytest.mark.parametrize(
    "change",
    [
        lambda p: replace(p, problem=replace(p.problem, model={"name": "a\0b"})),
        lambda p: replace(p, replicas=(replace(p.replicas[0], id="\ud800"),)),
        lambda p: replace(
            p,
            replicas=(
                replace(
                    p.replicas[0],
                    stages=(replace(p.replicas[0].stages[0], device="x\0"),),
                ),
            ),
        ),
    ],
)
def test_what_no_file_can_hold_is_refused(change: Any) -> None:
    with pytest.raises(InputError, match="no file can hold"):
        export(change(plan(replica("r0", "MIXED", [("tower", 8)]))), "vllm")


def test_words_of_the_shell_are_only_ours() -> None:
    """Positions that the machine fills in never hold a text of the plan, but for checked hosts."""
    from e2llm_opt.export.engines import exporter
    from e2llm_opt.export.setup import setup_of

    for engine in ENGINES:
        setup = setup_of(evil_plan("$(id)", engine), ExportOptions(), None)
        processes: tuple[Process, ...] = exporter(engine)(setup).processes
        for own in processes:
            for word in own.shell.values():
                assert re.fullmatch(
                    r'"\$\((address_of [a-z0-9.-]+)\)"|"\$\{INITIAL_PEERS:\?.*\}"', word
                )
