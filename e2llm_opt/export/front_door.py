"""One address in front of several replicas: nginx and HAProxy with the plan's weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from e2llm_opt.export.addresses import in_url
from e2llm_opt.export.names import label, unlike
from e2llm_opt.export.process import Endpoint
from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from e2llm_opt.export.process import Process
    from e2llm_opt.export.setup import ReplicaSetup, Setup

PORT = 8888
"""Where the front door listens."""
_SCALE = 100
"""Weights are whole numbers; they add up to about this (HAProxy takes at most 256 each)."""
_LONGEST_ANSWER_S = 3600


_HTTP = (
    "    access_log off;",
    "    client_max_body_size 0;  # prompts and pictures may be long",
    *(
        f"    {what}_temp_path nginx-{what};  # else root's, which others cannot make"
        for what in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    ),
)
"""Of every nginx configuration."""
_PASSED = (
    "            proxy_http_version 1.1;",
    "            proxy_request_buffering off;  # into files that not every user can write",
    "            proxy_buffering off;  # tokens must not be held back",
    f"            proxy_read_timeout {_LONGEST_ANSWER_S}s;",
)
"""How each request is passed on."""


def share(replica: ReplicaSetup) -> float:
    """Return the requests that the plan sends to a replica.

    At the planned rates; where there are none, in proportion to what each can serve.
    """
    own = replica.replica
    return own.arrival_rate_per_s or own.service_rate_per_s


def whole_share(replica: ReplicaSetup, output_tokens: float) -> float:
    """Return what a replica can serve if it does both phases, whatever its role [requests/s].

    Prefill, then *output_tokens* at the speed of full slots.
    """
    own = replica.replica
    if own.decode.tokens_per_s <= 0:
        return 0.0
    return 1.0 / (own.prefill.latency_s + output_tokens / own.decode.tokens_per_s)


def endpoint(
    setup: Setup, replica: ReplicaSetup, process: Process, *, drops_roles: bool
) -> Endpoint:
    """Return where a replica is asked, and how often in comparison with the others."""
    part = whole_share(replica, _output_tokens(setup)) if drops_roles else share(replica)
    return Endpoint(
        name=replica.id,
        host=process.host,
        port=process.port,
        share=part,
        slots=replica.slots,
        health=process.health.path,
    )


def _output_tokens(setup: Setup) -> float:
    """Return the mean answer that the plan was made for; 1 where it does not say [tokens]."""
    output = setup.plan.problem.workload.get("output_tokens")
    mean = output.get("mean") if isinstance(output, dict) else output
    return float(mean) if isinstance(mean, (int, float)) else 1.0


def pool_endpoint(setup: Setup, router: Process) -> Endpoint:
    """Return where all PREFILL and DECODE replicas together are asked."""
    decode = setup.of_role(Role.DECODE)
    return Endpoint(
        name="disaggregated",
        host=router.host,
        port=router.port,
        share=sum(share(replica) for replica in decode),
        slots=sum(replica.slots for replica in decode),
        health=router.health.path,
    )


def weights(shares: Sequence[float]) -> tuple[int, ...]:
    """Return whole weights, each at least 1, in proportion to *shares*; equal ones if all are 0.

    Examples
    --------
    >>> weights([0.3, 0.1]), weights([0, 0])
    ((75, 25), (50, 50))
    """
    total = sum(shares)
    if total <= 0:
        return (max(1, round(_SCALE / len(shares))),) * len(shares)
    return tuple(max(1, round(_SCALE * own / total)) for own in shares)


def front_door(endpoints: Sequence[Endpoint]) -> Mapping[str, str]:
    """Return the files of a front door; none where there is only one endpoint."""
    if len(endpoints) < 2:  # noqa: PLR2004 - one needs no door
        return {}
    shares = weights([endpoint.share for endpoint in endpoints])
    names = unlike((endpoint.name for endpoint in endpoints), label)
    rows = list(zip(names, endpoints, shares, strict=True))
    return {
        "front-door/nginx.conf": nginx(rows),
        "front-door/haproxy.cfg": _haproxy(rows),
        "front-door/README.md": _readme(rows),
    }


def nginx(rows: Sequence[tuple[str, Endpoint, int]], port: int = PORT) -> str:
    """Return a whole nginx configuration."""
    servers = [
        f"        server {in_url(own.host)}:{own.port} weight={weight};  # {name}"
        for name, own, weight in rows
    ]
    return "\n".join(
        [
            "# nginx -p . -e stderr -c front-door/nginx.conf -g 'daemon off;'",
            "pid nginx.pid;",
            "events {}",
            "http {",
            *_HTTP,
            "    upstream replicas {",
            "        least_conn;",
            *servers,
            "    }",
            "    server {",
            f"        listen {port};",
            "        location / {",
            "            proxy_pass http://replicas;",
            *_PASSED,
            '            proxy_set_header Connection "";',
            "            proxy_next_upstream error;",
            "        }",
            "    }",
            "}",
            "",
        ]
    )


@dataclass(frozen=True, slots=True)
class Share:
    """A route of one server, and its part of the requests."""

    route: str
    share: float


def nginx_by_route(shares: Sequence[Share], where: str) -> str:
    """Return a whole nginx configuration for routes of one server, chosen at random by weight.

    Parameters
    ----------
    where
        ``HOST:PORT`` of the server.
    """
    whole = weights([own.share for own in shares])
    total = sum(whole)
    parts = [
        f"        {100 * weight / total:.2f}% {own.route};"
        for own, weight in zip(shares[:-1], whole[:-1], strict=True)
    ]
    return "\n".join(
        [
            "# nginx -p . -e stderr -c front-door/nginx.conf -g 'daemon off;'",
            "pid nginx.pid;",
            "events {}",
            "http {",
            *_HTTP,
            '    split_clients "$request_id" $route {',
            *parts,
            f"        * {shares[-1].route};",
            "    }",
            f"    upstream serve {{ server {where}; }}",
            "    server {",
            f"        listen {PORT};",
            "        location / {",
            "            proxy_pass http://serve/$route$request_uri;",
            *_PASSED,
            "        }",
            "    }",
            "}",
            "",
        ]
    )


def _haproxy(rows: Sequence[tuple[str, Endpoint, int]]) -> str:
    servers = [
        f"    server {name} {in_url(own.host)}:{own.port} weight {weight} maxconn {own.slots} check"
        for name, own, weight in rows
    ]
    # Else the check is whether the port is open: one path is for all servers.
    paths = {own.health for _, own, _ in rows}
    return "\n".join(
        [
            "# haproxy -f haproxy.cfg",
            "# maxconn is the slots of a replica: a full one is passed over, and while all are",
            "# full, requests wait here. (leastconn would ignore the weights of idle replicas.)",
            "defaults",
            "    mode http",
            "    timeout connect 5s",
            f"    timeout client {_LONGEST_ANSWER_S}s",
            f"    timeout server {_LONGEST_ANSWER_S}s",
            f"    timeout queue {_LONGEST_ANSWER_S}s",
            "    option redispatch  # to another replica when one is gone",
            "frontend front",
            f"    bind :{PORT}",
            "    default_backend replicas",
            "backend replicas",
            "    balance roundrobin",
            *(f"    option httpchk GET {path}" for path in paths if len(paths) == 1 and path),
            *servers,
            "",
        ]
    )


def _readme(rows: Sequence[tuple[str, Endpoint, int]]) -> str:
    lines = [f"| {name} | {own.host}:{own.port} | {w} | {own.slots} |" for name, own, w in rows]
    return "\n".join(
        [
            "# Front door",
            "",
            "Users' requests come here and are shared between the replicas. Start one of the two,",
            "on any machine that reaches them, after all replicas are healthy:",
            "",
            "* HAProxy: `haproxy -f haproxy.cfg`; it also keeps requests waiting while all slots",
            "  of the replicas are busy, as the plan expects.",
            "* nginx: `nginx -p . -e stderr -c front-door/nginx.conf -g 'daemon off;'` in the",
            "  folder above; requests wait in the engines.",
            "",
            f"Both listen on port {PORT} of all interfaces: let no one in but your users.",
            f"Health: `curl -fsS http://localhost:{PORT}/v1/models`. Stop: Ctrl-C.",
            "",
            "| replica | address | weight | slots |",
            "|---|---|---|---|",
            *lines,
            "",
        ]
    )
