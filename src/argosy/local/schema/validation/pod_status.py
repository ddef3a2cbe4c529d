"""Which statuses of a pod are refused.

As in Kubernetes, an address that the pod has already is not looked at again.
"""

import ipaddress
from collections.abc import Iterator

from argosy.local.schema.errors import FieldError, Ordered, invalid
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import number, part, parts, text
from argosy.local.schema.validation.metadata import immutable
from argosy.local.schema.validation.names import address_problems, qualified_name_problems, subdomain_problems

SYSTEM_CONDITIONS = ("PodScheduled", "Ready", "Initialized")


def pod_status_errors(new: Json, old: Json) -> Iterator[FieldError]:
    """What is wrong with the change of a pod's status."""
    now, before = part(new, "status"), part(old, "status")
    for index, condition in enumerate(parts(now, "conditions")):
        where, kind = f"status.conditions[{index}]", text(condition, "type")
        yield from _natural(condition, where)
        for problem in () if kind in SYSTEM_CONDITIONS else qualified_name_problems(kind):
            yield invalid(f"{where}.Type", kind, problem)
    node = text(now, "nominatedNodeName")
    if node and node != text(before, "nominatedNodeName"):
        for problem in subdomain_problems(node):
            yield invalid("status.nominatedNodeName", node, problem)
    yield from _natural(now, "status")
    yield from immutable("status.qosClass", text(now, "qosClass"), text(before, "qosClass"))
    yield from _address_errors(now, before, "podIPs")
    hosts = parts(now, "hostIPs")
    if hosts and text(now, "hostIP") != text(hosts[0], "ip"):
        yield invalid("status.hostIPs[0].ip", text(hosts[0], "ip"), "must be equal to `hostIP`")
    yield from _address_errors(now, before, "hostIPs")


def _natural(owner: Json, where: str) -> Iterator[FieldError]:
    if number(owner, "observedGeneration") < 0:
        told = "must be a non-negative integer"
        yield invalid(f"{where}.observedGeneration", number(owner, "observedGeneration"), told)


def _address_errors(now: Json, before: Json, field: str) -> Iterator[FieldError]:
    addresses = [text(one, "ip") for one in parts(now, field)]
    known = {text(one, "ip") for one in parts(before, field)}
    wrong = False
    for index, address in enumerate(addresses):
        problems = [] if address in known else address_problems(address)
        wrong = wrong or bool(problems)
        for problem in problems:
            yield invalid(f"status.{field}[{index}]", address, problem)
    if wrong or len(addresses) < 2:
        return
    if len(addresses) > 2 or len({ipaddress.ip_address(one).version for one in addresses}) < 2:
        shown = [Ordered(IP=address) for address in addresses]
        yield invalid(f"status.{field}", shown, "may specify no more than one IP for each IP family")
