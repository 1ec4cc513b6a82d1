# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Options of the inventory plugin ``cluster_nodes``, and the call that reads the nodes."""

from __future__ import annotations

import datetime
import difflib
import functools
import json
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import (
    connection_options,
    option_values,
    specs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import run_context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    errors,
    kinds,
    kubeconfig,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import inventory_hosts

# The nodes of a cluster for an inventory: read page by page, of which only what is
# kept stays in memory.


@dataclass(frozen=True, slots=True)
class InventoryOptions:
    """Which nodes, by a label selector (empty: all), and the annotation to keep, see
    ``inventory_hosts.InventoryOptions``.
    """

    node_selector: str = ""
    maintained_annotation: str = ""


def read_nodes(ctx: run_context.Context, options: InventoryOptions) -> run_context.Result:
    """The nodes as ``inventory_hosts.kept`` keeps them, in ``nodes``. Nothing is written."""
    keep = functools.partial(inventory_hosts.kept, annotation=options.maintained_annotation)
    found = ctx.cluster.items(kinds.NODES, labels=options.node_selector, keep=keep)
    return run_context.Result({"nodes": found.items})


def server(target: t.Mapping[str, t.Any]) -> str:
    """Which cluster the fields of ``ConnectionOptions`` lead to,
    without a request and without a secret.

    Empty where that is not known before connecting: in a pod, or if the kubeconfig cannot be used.
    """
    if target.get("host"):
        return str(target["host"])
    paths = target.get("kubeconfig") or kubeconfig.default_paths()
    try:
        chosen = kubeconfig.choose(paths, target.get("context") or "")
    except errors.ConfigError:
        return ""
    return f"{chosen.cluster['server']} {chosen.context}"


Host = inventory_hosts.Host
Options = t.Mapping[str, t.Any]

SUFFIXES = ("cluster_nodes.yml", "cluster_nodes.yaml")
"""How the name of a configuration file ends."""


def _checked(params: specs.Params) -> specs.Params:
    option_values.label_selector("node_selector", params["node_selector"] or "")
    return params


SPEC = specs.ClusterModuleSpec(
    name="cluster_nodes",
    options={"node_selector": {"type": "str"}, "maintained_annotation": {"type": "str"}},
    engine=specs.engine(read_nodes, InventoryOptions),
    prepare=_checked,
)
"""The call that reads the nodes."""


class NotReadError(Exception):
    """The nodes could not be read; the message says why, without secrets."""


def refuse_unknown(given: t.Iterable[str], known: t.Collection[str]) -> None:
    """Ansible ignores keys of a configuration file that a plugin does not know;
    a typing error would go unnoticed.

    Raises:
        BadOption: there is such a key. The message names similar ones.
    """
    for key in given:
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=3, cutoff=0.6)
            hint = f"{' or '.join(close)}" if close else f"one of {', '.join(sorted(known))}"
            raise option_values.BadOption("cluster_nodes", key, hint)


def wanted(found: Options) -> inventory_hosts.InventoryOptions:
    """The plugin's own options, converted.

    Raises:
        BadOption: an option has an unusable value, or misses another.
    """
    annotation = found.get("maintained_annotation") or ""
    every = found.get("maintain_every")
    seconds = option_values.seconds("maintain_every", every)
    if seconds is not None and not annotation:
        expected = "the annotation of yours that holds the time of the last maintenance"
        expected = f"maintained_annotation with it, {expected}"
        raise option_values.BadOption("maintain_every", every, expected)
    return inventory_hosts.InventoryOptions(
        address_types=_some_of("address_types", found, inventory_hosts.ADDRESS_TYPES),
        group_by=_some_of("group_by", found, inventory_hosts.GROUPINGS),
        label_groups=option_values.names(found.get("label_groups")),
        maintained_annotation=annotation,
        maintain_every=seconds,
    )


def _some_of(name: str, found: Options, words: tuple[str, ...]) -> tuple[str, ...]:
    given = option_values.names(found.get(name))
    for word in given:
        if word not in words:
            raise option_values.BadOption(name, word, f"some of {', '.join(words)}")
    return given


def source(found: Options, environ: t.Mapping[str, str]) -> str:
    """Which nodes of which cluster, as a key of the cache: the same file may lead to
    another cluster tomorrow.

    No secret is in it.

    Raises:
        BadOption: a variable of the environment has an unusable value.
    """
    target = connection_options.connection(found, environ)
    who = [target.get("impersonate_user"), list(target.get("impersonate_groups") or ())]
    return json.dumps([server(target), who, [found.get(name) for name in SPEC.options]])


def read(found: Options, environ: t.Mapping[str, str]) -> list[dict[str, t.Any]]:
    """The nodes as plain JSON, which may be cached.

    Raises:
        NotReadError: a connection option is wrong, the cluster could not be reached,
            or nodes may not be listed.
    """
    result = specs.run_call(SPEC, specs.plain(found), specs.Call(environ=environ))
    if result["failed"]:
        raise NotReadError(result["msg"])
    return t.cast("list[dict[str, t.Any]]", result["nodes"])


def hosts(
    nodes: t.Iterable[t.Mapping[str, t.Any]], chosen: inventory_hosts.InventoryOptions
) -> list[Host]:
    """The hosts of these nodes by now; the order within groups is that of the list."""
    return inventory_hosts.hosts(nodes, chosen, datetime.datetime.now(datetime.UTC))
