"""Documents are what their readers take: published schemas where there are some."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings

from e2llm_opt import ExportOptions, export
from tests.export.parsers import manifests
from tests.export.plans import plan, plans, replica

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from e2llm_opt.export.exported import Export
    from e2llm_opt.plan.plan import Plan

TWO = (("tower", 16), ("laptop", 16))
FEW = settings(max_examples=8)


def roles(**facts: Any) -> Plan:
    return plan(
        replica("p0", "PREFILL", TWO, 1),
        replica("d0", "DECODE", [("mac", 32)], 8),
        replica("m0", "MIXED", [("a", 16), ("b", 16)], 3),
        **facts,
    )


# ---------------------------------------------------------------- Kubernetes


def assert_kubernetes(one: dict[str, Any]) -> None:
    """Validate against the schema of Kubernetes' own API, unknown fields refused."""
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    reading = kubernetes_validate.utils.schema_contents
    if not hasattr(reading, "cache_info"):  # it would read megabytes again for every object
        kubernetes_validate.utils.schema_contents = cache(reading)
    kubernetes_validate.validate(one, kubernetes_validate.latest_version(), strict=True)


def assert_names_fit(objects: list[dict[str, Any]]) -> None:
    """Check what schemas do not say: RFC 1035 names, label values, selectors that select."""
    names = [(one["kind"], one["metadata"]["name"]) for one in objects]
    assert len(set(names)) == len(names)
    pods = [
        one["spec"]["template"]["metadata"]["labels"]
        for one in objects
        if one["kind"] == "Deployment"
    ]
    for one in objects:
        assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", one["metadata"]["name"])
        for value in one["metadata"].get("labels", {}).values():
            assert re.fullmatch(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?", value), value
        if one["kind"] == "Service":
            wanted = one["spec"]["selector"].items()
            assert sum(wanted <= labels.items() for labels in pods) == 1
        if one["kind"] == "Deployment":
            selector = one["spec"]["selector"]["matchLabels"].items()
            assert selector <= one["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize("weights", ["q4_k_m", "f16"])
@FEW
@given(plans())
def test_manifests_are_kubernetes(weights: str, one: Plan) -> None:
    object.__setattr__(one.problem, "options", {"weights": weights, "kv_cache": "f16"})
    objects = manifests(export(one, "kubernetes"))
    for own in objects:
        assert_kubernetes(own)
    assert_names_fit(objects)


def test_a_stage_is_a_deployment_with_labels_on_its_node() -> None:
    answer = export(roles(weights="q4_k_m"), "kubernetes")
    assert any("built without RPC" in text for text in answer.warnings)
    mine = export(roles(weights="q4_k_m"), "kubernetes", options=ExportOptions(image="mine"))
    assert not any("built without RPC" in text for text in mine.warnings)
    deployments = {
        one["metadata"]["name"]: one for one in manifests(answer) if one["kind"] == "Deployment"
    }
    assert set(deployments) == {"p0-0", "p0-1", "d0-0", "m0-0", "m0-1", "front-door"}
    own = deployments["p0-1"]
    assert own["metadata"]["labels"]["e2llm/replica"] == "p0"
    assert own["metadata"]["labels"]["e2llm/stage"] == "1"
    assert own["metadata"]["labels"]["e2llm/role"] == "PREFILL"
    spec = own["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {"kubernetes.io/hostname": "laptop"}
    assert spec["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    command = spec["containers"][0]["command"]
    assert command[command.index("--rpc") + 1] == "p0-0:50052"
    assert command[command.index("--host") + 1] == "$(POD_IP)"
    policies = [one for one in manifests(answer) if one["kind"] == "NetworkPolicy"]
    assert {one["metadata"]["name"] for one in policies} == {"p0-0", "m0-0"}


@pytest.mark.parametrize("runtime", ["llama.cpp", "vllm", "sglang", "generic"])
def test_kubernetes_runs_the_engine_that_the_plan_was_made_for(runtime: str) -> None:
    one = roles(weights="q4_k_m" if runtime == "llama.cpp" else "f16", runtime=runtime)
    programs = {" ".join(own.argv[:3]) for own in export(one, "kubernetes").commands}
    wanted = {"llama.cpp": "llama-server", "sglang": "sglang.launch_server"}.get(runtime, "vllm")
    assert any(wanted in program for program in programs)


def test_the_front_door_of_kubernetes_asks_services_that_exist() -> None:
    objects = manifests(export(roles(weights="q4_k_m"), "kubernetes"))
    services = {one["metadata"]["name"] for one in objects if one["kind"] == "Service"}
    text = next(one["data"]["nginx.conf"] for one in objects if one["kind"] == "ConfigMap")
    asked = re.findall(r"server (\S+):\d+ weight", text)
    assert len(asked) == 3
    assert set(asked) <= services


# ---------------------------------------------------------------- Dynamo, llm-d, Ray

TEXT = {"type": "string"}
TEXTS = {"type": "array", "items": TEXT}


def strict(required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": False,
    }


SERVICE = strict(
    ["replicas", "extraPodSpec"],
    componentType={"enum": ["frontend", "worker"]},
    subComponentType={"enum": ["prefill", "decode"]},
    replicas={"const": 1},
    resources=strict(["limits"], limits=strict(["gpu"], gpu={"pattern": "^[0-9]+$"})),
    extraPodMetadata=strict(["labels"], labels={"additionalProperties": TEXT}),
    envs={"type": "array", "items": strict(["name", "value"], name=TEXT, value=TEXT)},
    extraPodSpec=strict(
        ["mainContainer"],
        nodeSelector={"additionalProperties": TEXT},
        mainContainer=strict(["image"], image=TEXT, command=TEXTS, args=TEXTS),
    ),
)
"""Fields of a service of ``nvidia.com/v1alpha1`` (api-reference.md of Dynamo) in use here."""
COMPONENT = strict(
    ["name", "replicas", "podTemplate"],
    name={"pattern": "^[A-Z][A-Za-z0-9]*$"},
    type={"enum": ["frontend", "worker", "prefill", "decode"]},
    replicas={"const": 1},
    podTemplate={"type": "object"},
)
"""Fields of a component of ``nvidia.com/v1beta1``, of the templates that ship with it."""
ROLE_VALUES = strict(
    ["create"],
    create={"type": "boolean"},
    replicas={"type": "integer"},
    parallelism={"type": "object", "additionalProperties": {"type": "integer"}},
    acceleratorTypes=strict(["labelKey", "labelValues"], labelKey=TEXT, labelValues=TEXTS),
    containers={
        "type": "array",
        "items": strict(
            ["name", "image", "modelCommand", "args"],
            name=TEXT,
            image=TEXT,
            modelCommand={"enum": ["vllmServe", "imageDefault", "custom"]},
            command=TEXTS,
            args=TEXTS,
            env={"type": "array"},
            ports={"type": "array"},
            resources={"type": "object"},
            mountModelVolume={"type": "boolean"},
        ),
    },
)
VALUES = strict(
    ["modelArtifacts", "routing", "prefill", "decode"],
    fullnameOverride=TEXT,
    multinode={"type": "boolean"},
    modelArtifacts=strict(
        ["name", "uri"],
        name=TEXT,
        uri={"pattern": "^(hf|pvc)://"},
        size=TEXT,
        labels={"additionalProperties": TEXT},
    ),
    routing=strict(
        ["servicePort"],
        servicePort={"type": "integer"},
        proxy=strict(
            ["enabled"],
            enabled={"type": "boolean"},
            targetPort={"type": "integer"},
            connector=TEXT,
        ),
    ),
    prefill=ROLE_VALUES,
    decode=ROLE_VALUES,
)
"""Keys of the chart's values.yaml (llm-d-incubation/llm-d-modelservice) that are used here."""
LLM_CONFIG = strict(
    ["model_loading_config"],
    model_loading_config=strict(["model_id"], model_id=TEXT, model_source=TEXT),
    engine_kwargs={"type": "object"},
    deployment_config=strict(["num_replicas"], num_replicas={"type": "integer", "minimum": 1}),
    placement_group_config=strict(
        ["bundles"],
        bundles={"type": "array", "items": {"additionalProperties": {"type": "number"}}},
        strategy={"enum": ["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]},
    ),
    runtime_env=strict(["env_vars"], env_vars={"additionalProperties": TEXT}),
)
"""Fields of Ray's LLMConfig."""


@FEW
@given(plans())
def test_dynamo_has_the_fields_of_its_resource(one: Plan) -> None:
    graph, *services = manifests(export(one, "dynamo"), "dynamo.yaml")
    assert (graph["apiVersion"], graph["kind"]) == (
        "nvidia.com/v1alpha1",
        "DynamoGraphDeployment",
    )
    for name, own in graph["spec"]["services"].items():
        assert re.fullmatch("[A-Z][A-Za-z0-9]*", name)
        jsonschema.validate(own, SERVICE)
    for own in services:
        assert_kubernetes(own)
    options = ExportOptions(dynamo_api="v1beta1")
    graph = manifests(export(one, "dynamo", options=options), "dynamo.yaml")[0]
    assert graph["apiVersion"] == "nvidia.com/v1beta1"
    names = [own["name"] for own in graph["spec"]["components"]]
    assert len(set(names)) == len(names)
    for own in graph["spec"]["components"]:
        jsonschema.validate(own, COMPONENT)
        pod = {"apiVersion": "v1", "kind": "Pod", **own["podTemplate"]}
        pod.setdefault("metadata", {})["name"] = "x"
        assert_kubernetes(pod)


def test_dynamo_says_roles_in_the_words_of_each_version() -> None:
    alpha = manifests(export(roles(), "dynamo"), "dynamo.yaml")[0]["spec"]["services"]
    args = alpha["VllmPrefillP0Stage0"]["extraPodSpec"]["mainContainer"]["args"]
    assert "--is-prefill-worker" in args
    assert alpha["VllmDecodeD0Stage0"]["subComponentType"] == "decode"
    assert "subComponentType" not in alpha["VllmMixedM0Stage0"]
    options = ExportOptions(dynamo_api="v1beta1")
    beta = manifests(export(roles(), "dynamo", options=options), "dynamo.yaml")[0]["spec"]
    own = next(one for one in beta["components"] if one["name"] == "VllmPrefillP0Stage0")
    args = own["podTemplate"]["spec"]["containers"][0]["args"]
    assert args[args.index("--disaggregation-mode") + 1] == "prefill"
    assert own["type"] == "prefill"


def test_llm_d_has_values_of_the_chart_for_every_replica() -> None:
    answer = export(roles(), "llm-d")
    names = [name for name in answer.files if name.startswith("values-")]
    assert names == ["values-p0.yaml", "values-d0.yaml", "values-m0.yaml"]
    found = {name: yaml.safe_load(answer.files[name]) for name in names}
    for values in found.values():
        jsonschema.validate(values, VALUES)
        assert values["prefill"]["create"] != values["decode"]["create"]
    assert found["values-p0.yaml"]["prefill"]["create"]
    assert found["values-d0.yaml"]["routing"]["proxy"]["enabled"]
    assert not found["values-m0.yaml"]["routing"]["proxy"]["enabled"]
    labels = [values["modelArtifacts"]["labels"]["llm-d.ai/model"] for values in found.values()]
    assert len(set(labels)) == 1, "one InferencePool finds them all"


@FEW
@given(plans())
def test_ray_has_the_fields_of_its_configuration(one: Plan) -> None:
    answer = export(one, "ray-serve")
    if answer.not_expressible is not None:
        return
    document = yaml.safe_load(answer.files["serve.yaml"])
    prefixes = [own["route_prefix"] for own in document["applications"]]
    assert len(set(prefixes)) == len(prefixes)
    for own in document["applications"]:
        configs = own["args"].get("llm_configs", [])
        if own["import_path"] == "ray.serve.llm:build_pd_openai_app":
            configs = [own["args"]["prefill_config"], own["args"]["decode_config"]]
            for config in configs:
                assert config["engine_kwargs"]["kv_transfer_config"]["kv_role"] == "kv_both"
        assert configs
        for config in configs:
            jsonschema.validate(config, LLM_CONFIG)


# ---------------------------------------------------------------- nginx, HAProxy


def doors() -> Iterator[Export]:
    yield export(roles(weights="q4_k_m"), "llama.cpp")
    yield export(roles(), "vllm")
    yield export(roles(), "ray-serve")
    names = ["a;b", "$(id)", "x\ny", "{", "#"]
    yield export(
        plan(*(replica(own, "MIXED", [(own, 8)]) for own in names), weights="q4_k_m"),
        "llama.cpp",
        options=ExportOptions(addresses={own: f"127.0.0.{i}" for i, own in enumerate(names, 1)}),
    )


@pytest.mark.skipif(shutil.which("nginx") is None, reason="needs nginx")
def test_nginx_takes_its_configuration(tmp_path: Path) -> None:
    for number, answer in enumerate(doors()):
        text = answer.files["front-door/nginx.conf"]
        # It looks names up when it reads them, and these hosts do not exist.
        text = re.sub(r"server [a-z0-9-]+:", "server 127.0.0.1:", text)
        path = tmp_path / f"{number}.conf"
        path.write_text(text, encoding="utf-8")
        done = subprocess.run(
            ["nginx", "-t", "-p", tmp_path, "-e", "stderr", "-c", path],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "nginx-client_body").is_dir(), "where its user can write"


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="needs HAProxy")
def test_haproxy_takes_its_configuration(tmp_path: Path) -> None:
    for answer in doors():
        if "front-door/haproxy.cfg" not in answer.files:
            continue
        text = answer.files["front-door/haproxy.cfg"]
        text = re.sub(r"(server \S+) [a-z0-9-]+:", r"\1 127.0.0.1:", text)
        path = tmp_path / "haproxy.cfg"
        path.write_text(text, encoding="utf-8")
        done = subprocess.run(
            ["haproxy", "-c", "-f", path], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr + done.stdout


def test_ray_shares_requests_between_routes() -> None:
    text = export(roles(), "ray-serve").files["front-door/nginx.conf"]
    assert "50.00% m0;" in text
    assert "* disaggregated;" in text


# ---------------------------------------------------------------- exo


class Exo(BaseHTTPRequestHandler):
    """Answers as exo does: placements in its own spelling, with layers of its own."""

    posted: list[Any]

    def do_GET(self) -> None:
        if self.path == "/state":
            names = {"id-1": "tower", "id-2": "laptop"}
            self.answer({"nodeProfiles": {k: {"friendlyName": v} for k, v in names.items()}})
        else:
            assert "sharding=Pipeline" in self.path
            assert "min_nodes=2" in self.path
            shards = {
                f"run-{rank}": {
                    "PipelineShardMetadata": {
                        "modelCard": {"modelId": "m"},
                        "deviceRank": rank,
                        "worldSize": 2,
                        "startLayer": 10 * rank,
                        "endLayer": 10 * rank + 10,
                        "nLayers": 32,
                    }
                }
                for rank in (1, 0)
            }
            assigned = {
                "modelId": "m",
                "runnerToShard": shards,
                "nodeToRunner": {"id-2": "run-0", "id-1": "run-1"},
            }
            self.answer({"MlxRingInstance": {"instanceId": "x", "shardAssignments": assigned}})

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        self.posted.append((self.path, json.loads(self.rfile.read(size))))
        self.answer({"ok": True})

    def answer(self, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        del args


def test_the_script_for_exo_posts_our_layers_in_its_own_spelling(tmp_path: Path) -> None:
    Exo.posted = []
    one = plan(replica("r0", "MIXED", [("tower", 5), ("laptop", 27)]), weights="mlx_4bit")
    export(one, "exo").write(tmp_path / "run")
    running = ThreadingHTTPServer(("127.0.0.1", 0), Exo)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    try:
        done = subprocess.run(
            [
                sys.executable,
                "place.py",
                f"http://127.0.0.1:{running.server_port}",
                "instance-r0.json",
            ],
            cwd=tmp_path / "run",
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
    finally:
        running.shutdown()
        running.server_close()
        thread.join()
    assert done.returncode == 0, done.stderr
    ((path, body),) = Exo.posted
    assert path == "/instance"
    assigned = body["instance"]["MlxRingInstance"]["shardAssignments"]
    assert assigned["nodeToRunner"] == {"id-1": "run-0", "id-2": "run-1"}
    layers = {
        name: (own["PipelineShardMetadata"]["startLayer"], own["PipelineShardMetadata"]["endLayer"])
        for name, own in assigned["runnerToShard"].items()
    }
    assert layers == {"run-0": (0, 5), "run-1": (5, 32)}
    assert set(assigned["runnerToShard"]["run-0"]["PipelineShardMetadata"]) == {
        "modelCard",
        "deviceRank",
        "worldSize",
        "startLayer",
        "endLayer",
        "nLayers",
    }
