"""The script that posts a plan's instances to a running exo; standard library only."""

from __future__ import annotations

from typing import Final

PLACE: Final = '''\
#!/usr/bin/env python3
"""Post instances with explicit layers to a running exo.

    python3 place.py http://HOST:52415 instance-*.json [--node DEVICE=NODE_ID ...] [--dry-run]
"""

import argparse
import json
import pathlib
import urllib.parse
import urllib.request


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("instances", nargs="+", type=pathlib.Path)
    parser.add_argument("--node", action="append", default=[], metavar="DEVICE=NODE_ID")
    parser.add_argument("--meta", default="MlxRing", help="MlxRing or MlxJaccl")
    parser.add_argument("--dry-run", action="store_true")
    args = parser.parse_args()
    nodes = known_nodes(ask(args.url, "/state"))
    nodes.update(pair.rsplit("=", 1) for pair in args.node)
    posted = {}
    for path in args.instances:
        wanted = json.loads(path.read_text(encoding="utf-8"))["instance"]
        body = placed(args.url, args.meta, wanted, nodes)
        if args.dry_run:
            print(json.dumps(body, indent=2))
        else:
            print(path, ask(args.url, "/instance", body))
        posted[wanted["instance_id"]] = value(inner(body), "instance_id")
    links = pathlib.Path(args.instances[0]).with_name("instance-links.json")
    if links.exists() and not args.dry_run:
        body = {
            role: [posted[name] for name in names if name in posted]
            for role, names in json.loads(links.read_text(encoding="utf-8")).items()
        }
        print(links, ask(args.url, "/v1/instance-links", body))


def placed(url, meta, wanted, nodes):
    """Ask exo for a placement of as many nodes, and put our nodes and layers into it."""
    ours = wanted["shard_assignments"]
    query = urllib.parse.urlencode(
        {
            "model_id": ours["model_id"],
            "sharding": wanted.get("sharding", "Pipeline"),
            "instance_meta": meta,
            "min_nodes": len(ours["runner_to_shard"]),
        }
    )
    answer = ask(url, "/instance/placement?" + query)
    body = answer if "instance" in answer else {"instance": answer}
    theirs = value(inner(body), "shard_assignments")
    shards = value(theirs, "runner_to_shard")
    if len(shards) != len(ours["runner_to_shard"]):
        raise SystemExit(f"exo places on {len(shards)} nodes, not {query}")
    runners = {}
    for runner, shard in shards.items():
        runners[value(inner(shard), "device_rank")] = runner
    replaced = {}
    for device, name in ours["node_to_runner"].items():
        shard = ours["runner_to_shard"][name]
        if device not in nodes:
            raise SystemExit(f"exo knows no {device!r}: give --node {device}=NODE_ID of {nodes}")
        runner = runners[shard["device_rank"]]
        put(inner(shards[runner]), shard)
        replaced[nodes[device]] = runner
    before = value(theirs, "node_to_runner")
    if set(before) != set(replaced):
        raise SystemExit(f"exo chose the nodes {sorted(before)}, not {sorted(replaced)}: start exo "
                         "on the devices of one replica first, and place it, then the next")
    put(theirs, {"node_to_runner": replaced})
    return body


def inner(tagged):
    """Return what stands below the name of a type."""
    own = tagged.get("instance", tagged)
    if len(own) == 1:
        only = next(iter(own.values()))
        return only if isinstance(only, dict) else own
    return own


def plain(key):
    return key.replace("_", "").lower()


def value(mapping, key):
    """Return a value whatever the spelling of its key: start_layer or startLayer."""
    return next(v for k, v in mapping.items() if plain(k) == plain(key))


def put(mapping, values):
    for key, new in values.items():
        spelled = next(k for k in mapping if plain(k) == plain(key))
        mapping[spelled] = new


def known_nodes(state):
    """Return node ids by the names that people gave, wherever the state has them."""
    found = {}

    def look(part, node):
        if isinstance(part, dict):
            for key, item in part.items():
                if plain(key) in ("friendlyname", "name") and isinstance(item, str) and node:
                    found.setdefault(item, node)
                look(item, key)
        elif isinstance(part, list):
            for item in part:
                look(item, node)

    look(state, "")
    return found


def ask(url, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url.rstrip("/") + path, data=data, headers=headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read().decode() or "null")


main()
'''
"""Text of ``place.py``."""
