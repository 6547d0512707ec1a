"""What each source prints, as its documentation and its users show it."""

from __future__ import annotations

import json
from typing import Any

NVIDIA_SMI = """\
index, name, uuid, memory.total [MiB], memory.used [MiB], power.limit [W]
0, NVIDIA GeForce RTX 3060, GPU-1d9bd5b8-0a7d-4b0f-9a39-1df2a0a2c3f1, 12288 MiB, 312 MiB, 170.00 W
1, NVIDIA GeForce RTX 3090, GPU-7c1b1c1e-2f7a-4b1f-8c2e-6a7c1e2f7a4b, 24576 MiB, 9216 MiB, 350.00 W
"""
NVIDIA_SMI_BARE = "Tesla T4, GPU-25d1b2a4-7fb9-4b4f-b6ab-4d3c1c9a2b61, 15360, 14900\n"
NVIDIA_SMI_NO_UNITS = "name, uuid, memory.total [MiB]\nNVIDIA L4, GPU-a1, 23034\n"
NVIDIA_SMI_UNIFIED = "index, name, uuid, memory.total [MiB]\n0, NVIDIA GB10, GPU-b2, [N/A]\n"

LLAMA_SERVER = """\
ggml_cuda_init: GGML_CUDA_FORCE_MMQ:    no
ggml_cuda_init: found 2 CUDA devices:
  Device 0: NVIDIA GeForce RTX 3060, compute capability 8.6, VMM: yes
Available devices:
  CUDA0: NVIDIA GeForce RTX 3060 (12037 MiB, 11806 MiB free)
  RPC0: 192.168.1.5:50052 (24109 MiB, 23800 MiB free)
"""
LLAMA_SERVER_OLD = """\
Available devices:
  Vulkan0: AMD Radeon RX 7900 XTX (RADV NAVI31) (24560 MiB, 24000 MiB free)
  RPC[10.0.0.4:50052]: RPC[10.0.0.4:50052] (8192 MiB, 8000 MiB free)
"""
LLAMA_SERVER_MAC = "Available devices:\n  Metal: Apple M4 Pro (36864 MiB, 36863 MiB free)\n"


def iperf3(
    *,
    reverse: int = 0,
    rate: float = 941e6,
    back: float | None = None,
    rtt_us: float = 412.0,
    local: str = "192.168.1.2",
    remote: str = "192.168.1.7",
    host: str = "mini.lan",
    system: str = "Linux tower 6.8.0-45-generic #45-Ubuntu SMP x86_64",
    streams: int = 1,
    is_server: bool = False,
) -> str:
    """Return the parts of a test that matter, in iperf 3.16's names and order."""
    start: dict[str, Any] = {
        "connected": [{"socket": 5, "local_host": local, "local_port": 42, "remote_host": remote}],
        "version": "iperf 3.16",
        "system_info": system,
    }
    if is_server:
        start["accepted_connection"] = {"host": remote, "port": 42}
    else:
        start["connecting_to"] = {"host": host, "port": 5201}
    start["test_start"] = {"protocol": "TCP", "num_streams": streams, "reverse": reverse}
    sender = {"bits_per_second": rate, "mean_rtt": rtt_us, "max_rtt": 900, "sender": True}
    end: dict[str, Any] = {
        "streams": [{"sender": sender, "receiver": {"bits_per_second": rate}}] * streams,
        "sum_sent": {"bits_per_second": 1.02 * rate, "retransmits": 3},
        "sum_received": {"bits_per_second": rate},
    }
    if back is not None:
        start["test_start"]["bidir"] = 1
        end["sum_sent_bidir_reverse"] = {"bits_per_second": 1.02 * back}
        end["sum_received_bidir_reverse"] = {"bits_per_second": back}
    return json.dumps({"start": start, "intervals": [], "end": end}, indent="\t")


PING_LINUX = """\
PING mini.lan (192.168.1.7) 56(84) bytes of data.
64 bytes from mini.lan (192.168.1.7): icmp_seq=1 ttl=64 time=0.318 ms

--- mini.lan ping statistics ---
20 packets transmitted, 20 received, 0% packet loss, time 19447ms
rtt min/avg/max/mdev = 0.201/0.312/0.520/0.071 ms
"""
PING_MAC = """\
PING mini.lan (192.168.1.7): 56 data bytes
64 bytes from 192.168.1.7: icmp_seq=0 ttl=64 time=4.902 ms

--- mini.lan ping statistics ---
20 packets transmitted, 19 packets received, 5.0% packet loss
round-trip min/avg/max/stddev = 3.1/4.9/54.0/8.1 ms
"""
PING_BUSYBOX = """\
PING 10.0.0.4 (10.0.0.4): 56 data bytes

--- 10.0.0.4 ping statistics ---
3 packets transmitted, 3 packets received, 0% packet loss
round-trip min/avg/max = 0.5/0.6/0.7 ms
"""
PING_WINDOWS = """\

Pinging mini [192.168.1.7] with 32 bytes of data:
Reply from 192.168.1.7: bytes=32 time=2ms TTL=64

Ping statistics for 192.168.1.7:
    Packets: Sent = 4, Received = 4, Lost = 0 (0% loss),
Approximate round trip times in milli-seconds:
    Minimum = 1ms, Maximum = 3ms, Average = 2ms
"""
PING_DEAD = """\
PING mini.lan (192.168.1.7) 56(84) bytes of data.

--- mini.lan ping statistics ---
4 packets transmitted, 0 received, 100% packet loss, time 3061ms
"""

KUBERNETES = json.dumps(
    {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {
                "kind": "Node",
                "metadata": {
                    "name": "gpu-a",
                    "labels": {
                        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
                        "nvidia.com/gpu.memory": "81920",
                        "nvidia.com/gpu.count": "4",
                    },
                },
                "status": {"allocatable": {"memory": "1056Gi", "nvidia.com/gpu": "4"}},
            },
            {
                "kind": "Node",
                "metadata": {
                    "name": "edge-1",
                    "labels": {
                        "nvidia.com/gpu.product": "Tesla-T4-SHARED",
                        "nvidia.com/gpu.memory": "15360",
                        "nvidia.com/gpu.count": "1",
                        "nvidia.com/gpu.replicas": "4",
                    },
                },
                "spec": {"unschedulable": True},
                "status": {"capacity": {"nvidia.com/gpu": "4"}},
            },
            {
                "kind": "Node",
                "metadata": {"name": "cpu-1", "labels": {}},
                "status": {"allocatable": {"cpu": "3920m", "memory": "32780344Ki"}},
            },
        ],
    },
    indent=4,
)

GPUSTACK = json.dumps(
    {
        "items": [
            {
                "id": 1,
                "name": "worker-1",
                "hostname": "worker-1",
                "ip": "10.0.0.2",
                "state": "ready",
                "system_reserved": {"ram": 2147483648, "vram": 1073741824},
                "status": {
                    "memory": {"total": 67430350848, "is_unified_memory": False},
                    "gpu_devices": [
                        {
                            "index": i,
                            "name": "NVIDIA GeForce RTX 4090",
                            "vendor": "nvidia",
                            "uuid": f"GPU-{i}",
                            "memory": {"total": 25757220864, "used": 1, "is_unified_memory": False},
                        }
                        for i in range(2)
                    ],
                },
            },
            {
                "id": 2,
                "name": "mac",
                "state": "not_ready",
                "status": {
                    "gpu_devices": [
                        {
                            "index": 0,
                            "name": "Apple M2 Ultra",
                            "memory": {"total": 206158430208, "is_unified_memory": True},
                        }
                    ]
                },
            },
            {"id": 3, "name": "plain", "status": {"memory": {"total": 17179869184}}},
        ],
        "pagination": {"page": 1, "perPage": 100, "total": 3, "totalPage": 1},
    },
    indent=2,
)

FACTS = {
    "ansible_hostname": "pi",
    "ansible_memtotal_mb": 8064,
    "ansible_processor": ["0", "ARM", "Cortex-A76"],
    "ansible_processor_vcpus": 4,
    "ansible_product_name": "Raspberry Pi 5 Model B Rev 1.0",
    "ansible_default_ipv4": {"address": "192.168.1.9", "interface": "eth0"},
    "ansible_eth0": {"speed": 1000, "active": True},
}
ANSIBLE = (
    f"pi | SUCCESS => {json.dumps({'ansible_facts': FACTS, 'changed': False}, indent=4)}\n"
    'nas | UNREACHABLE! => {\n    "changed": false,\n    "unreachable": true\n}\n'
    "box | SUCCESS => "
    + json.dumps(
        {
            "ansible_facts": {
                "ansible_memtotal_mb": 15735,
                "ansible_processor": ["0", "GenuineIntel", "Intel(R) N100"],
            }
        },
        indent=4,
    )
    + "\n"
)
ANSIBLE_TREE = json.dumps({"ansible_facts": FACTS, "changed": False})
ANSIBLE_CACHE = json.dumps(FACTS)

RAY = """\
cluster_name: lab
provider:
    type: gcp
    region: us-central1
available_node_types:
    head:
        resources: {"CPU": 8, "memory": 34359738368}
        node_config: {}
        max_workers: 0
    l4:
        resources: {"CPU": 8, "GPU": 1, "accelerator_type:L4": 1}
        node_config: {machineType: g2-standard-8}
        min_workers: 0
        max_workers: 3
    a100x2:
        resources: {"GPU": 2}
        node_config:
            guestAccelerators:
                - acceleratorType: projects/p/zones/z/acceleratorTypes/nvidia-tesla-a100
                  acceleratorCount: 2
        max_workers: 2
head_node_type: head
"""
RAY_LOCAL = """\
cluster_name: home
provider:
    type: local
    head_ip: 192.168.1.2
    worker_ips: [192.168.1.3, pi.lan]
"""

PARALLAX = json.dumps(
    [
        {
            "node_id": "a",
            "hardware": {
                "node_id": "a",
                "num_gpus": 1,
                "tflops_fp16": 82.6,
                "gpu_name": "RTX 4090",
                "memory_gb": 24.0,
                "memory_bandwidth_gbps": 1008.0,
                "device": "cuda",
            },
            "rtt_to_nodes": {"b": 1.0, "z": 3.0},
        },
        {
            "node_id": "b",
            "hardware": {
                "node_id": "b",
                "num_gpus": 2,
                "tflops_fp16": 35.6,
                "gpu_name": "RTX 3090",
                "memory_gb": 24.0,
                "memory_bandwidth_gbps": 936.0,
                "device": "cuda",
            },
            "rtt_to_nodes": {"a": 3.0},
        },
    ],
    indent=1,
)
PARALLAX_STATUS = json.dumps(
    {
        "type": "cluster_status",
        "data": {
            "node_list": [
                {"node_id": "12D3Koo", "gpu_num": 1, "gpu_name": "Apple M4", "gpu_memory": 24.0}
            ]
        },
    }
)

GRAPH = json.dumps(
    {
        "directed": False,
        "multigraph": False,
        "graph": {},
        "nodes": [
            {"id": "tower", "type": "rtx-3060-12gb", "rack": 3},
            {"id": "mini", "memory_gib": 24, "memory_bandwidth_gb_s": 120, "fp16_tflops": 4.3},
            {"id": "lan"},
        ],
        "edges": [
            {"source": "tower", "target": "lan", "bandwidth_mbit_s": 940, "latency_ms": 0.1},
            {"source": "mini", "target": "lan", "bandwidth_mbit_s": 500, "latency_ms": 0.2},
        ],
    },
    indent=2,
)
SAMPLES: dict[str, dict[str, str]] = {
    "nvidia-smi": {
        "csv": NVIDIA_SMI,
        "no header": NVIDIA_SMI_BARE,
        "no units": NVIDIA_SMI_NO_UNITS,
        "unified": NVIDIA_SMI_UNIFIED,
    },
    "llama-server": {
        "rpc": LLAMA_SERVER,
        "old rpc": LLAMA_SERVER_OLD,
        "mac": LLAMA_SERVER_MAC,
    },
    "iperf3": {
        "there": iperf3(),
        "back": iperf3(reverse=1, rate=700e6),
        "bidir": iperf3(back=800e6),
        "server": iperf3(is_server=True, rtt_us=0),
    },
    "ping": {
        "linux": PING_LINUX,
        "mac": PING_MAC,
        "busybox": PING_BUSYBOX,
        "windows": PING_WINDOWS,
    },
    "kubernetes": {"nodes": KUBERNETES},
    "gpustack": {"page": GPUSTACK, "list": json.dumps(json.loads(GPUSTACK)["items"])},
    "ansible": {"all": ANSIBLE, "tree": ANSIBLE_TREE, "cache": ANSIBLE_CACHE},
    "ray": {"cloud": RAY, "local": RAY_LOCAL},
    "parallax": {"nodes": PARALLAX, "status": PARALLAX_STATUS},
    "graph": {"json": GRAPH, "links": GRAPH.replace('"edges"', '"links"')},
}
"""Source → variant → text."""
