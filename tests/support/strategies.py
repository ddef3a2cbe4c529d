"""Hypothesis strategies for job definitions and observed clusters, for property tests.

`from_schema` generates what a schema accepts. `corrupted` changes a few parts of a valid object, also their
types, as editing mistakes and templating tools do. `observations` generates what a reconcile may observe,
including combinations that do not occur in practice.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from hypothesis import strategies as st
from msgspec.structs import replace

from argosy.kinds.crd_options import PRESERVE_UNKNOWN_FIELDS
from argosy.kinds.kubernetes import Service
from argosy.plan.actions import ActionResult, ActionStatus
from argosy.workload.capacity import Capacity, FreeNode
from argosy.workload.observed import Observed, ObservedGroup, ObservedPod
from tests.support.workloads import NOW, existing

Strategy = st.SearchStrategy[object]
Overrides = Mapping[str, Strategy]
"""Strategies for fields of these names; `*` is the strategy for the keys of maps."""

TEXTS = ("", "x", "Never", "Running", "/etc/hostfile", "a,,b", "..", "wörker", "x" * 300, "${IMAGE}", "1e9")
NUMBERS = (0, 1, 2, 3, -1, 65_536, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63))
WRONG: Sequence[object] = (None, True, 1.5, {}, [], [None], {"a": None}, [[]], {"": {}}, *TEXTS, *NUMBERS)


def from_schema(schema: Mapping[str, object], overrides: Overrides, name: str = "") -> Strategy:
    """Values that the schema accepts; optional fields are left out at random."""
    generated = overrides[name] if name in overrides else _from_type(schema, overrides)
    return st.one_of(generated, st.none()) if schema.get("nullable") else generated


def _from_type(schema: Mapping[str, object], overrides: Overrides) -> Strategy:
    if "enum" in schema:
        return st.sampled_from(cast("list[object]", schema["enum"]))
    if schema.get("x-kubernetes-int-or-string"):
        return st.sampled_from([1, "2Gi", "lots", -1])
    match schema.get("type"):
        case "string":
            return _text(schema)
        case "integer":
            low, high = (cast("int | None", schema.get(bound)) for bound in ("minimum", "maximum"))
            numbers = [low or 0, high or 3, *NUMBERS]
            within = [n for n in numbers if (low is None or n >= low) and (high is None or n <= high)]
            return st.sampled_from(within)
        case "boolean":
            return st.booleans()
        case "array":
            least = cast("int", schema.get("minItems", 0))
            items = from_schema(cast("Mapping[str, object]", schema["items"]), overrides)
            return st.lists(items, min_size=least, max_size=least + 2).map(lambda generated: generated)
    return _object(schema, overrides)


def _text(schema: Mapping[str, object]) -> Strategy:
    least, most = cast("int", schema.get("minLength", 0)), cast("int", schema.get("maxLength", 1000))
    if pattern := schema.get("pattern"):
        return st.from_regex(str(pattern), fullmatch=True).filter(lambda text: least <= len(text) <= most)
    return st.sampled_from([text for text in TEXTS if least <= len(text) <= most])


def _object(schema: Mapping[str, object], overrides: Overrides) -> Strategy:
    if "additionalProperties" in schema:
        inner = from_schema(cast("Mapping[str, object]", schema["additionalProperties"]), overrides)
        return st.dictionaries(overrides["*"], inner, max_size=3).map(lambda generated: generated)
    properties = cast("dict[str, Mapping[str, object]]", schema.get("properties", {}))
    required = cast("list[str]", schema.get("required", []))
    parts = {name: from_schema(field, overrides, name) for name, field in properties.items()}
    must = {name: parts.pop(name) for name in required if name in parts}
    if schema.get(PRESERVE_UNKNOWN_FIELDS):
        parts["unheardOf"] = st.sampled_from(WRONG)
    return st.fixed_dictionaries(must, optional=parts).map(lambda generated: generated)


@st.composite
def corrupted(draw: st.DrawFn, samples: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """A sample in which up to three parts are replaced or removed."""
    generated = copy.deepcopy(dict(draw(st.sampled_from(samples))))
    for _ in range(draw(st.integers(1, 3))):
        parent, key = draw(st.sampled_from(list(_places(generated))))
        if draw(st.booleans()):
            parent[key] = copy.deepcopy(draw(st.sampled_from(WRONG)))
        else:
            del parent[key]
        if not generated:
            break
    return generated


def _places(value: object) -> Iterator[tuple[dict[object, object], object]]:
    """Every position in a JSON value, as a map or list and a key or index of it."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    parent = cast("dict[object, object]", value)
    for key in keys:
        yield parent, key
        yield from _places(parent[key])


def observations(roles: Sequence[str]) -> st.SearchStrategy[Observed]:
    """What a reconcile may observe of a job with these roles."""
    names = st.sampled_from([*roles, "stranger"])
    nodes = st.sampled_from(["", "n1", "n2"])
    pods = st.builds(
        ObservedPod,
        name=st.just(""),
        uid=st.just(""),
        role=names,
        index=st.integers(0, 3),
        attempt=st.integers(1, 2),
        replacement=st.integers(0, 1),
        phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"]),
        terminating=st.booleans(),
        node=nodes,
        exit_code=st.sampled_from([None, 0, 1, 137, 139]),
        first_exit_code=st.sampled_from([None, 0, 1, 137]),
        container_restarts=st.integers(0, 2),
        disrupted=st.booleans(),
        preempted_at=st.sampled_from([None, NOW]),
        waits_for_dependency=st.booleans(),
        waiting_reason=st.sampled_from(["", "ImagePullBackOff", "Unschedulable"]),
        created=st.sampled_from([None, NOW]),
        deletion_time=st.sampled_from([None, NOW]),
    )
    outcomes = st.builds(
        ActionResult,
        kind=st.sampled_from(["Pod", "Service", "PodGroup"]),
        name=st.just("it"),
        status=st.sampled_from(ActionStatus),
        message=st.sampled_from(["", "no", "x" * 5000]),
        role=names,
        index=st.sampled_from([None, 0, 7]),
    )
    groups = st.builds(
        ObservedGroup,
        scheduler=st.sampled_from(["volcano", "kubernetes"]),
        queued=st.booleans(),
        scheduled=st.booleans(),
        evicted=st.booleans(),
    )
    down = st.frozensets(nodes, max_size=2)
    return st.builds(
        Observed,
        pods=st.lists(pods, max_size=6).map(_with_unique_names),
        nodes_down=down,
        nodes_partly_unknown=down,
        children=st.sampled_from([(), (existing(Service, "job-worker"),), (existing(Service, "other"),)]),
        group=st.one_of(st.none(), groups),
        gang_scheduler_setting=st.sampled_from(["volcano", "builtin", "auto", "none"]),
        available_gang_schedulers=st.frozensets(st.sampled_from(["volcano", "kubernetes", "builtin"])),
        capacity=st.sampled_from(
            [None, Capacity(), Capacity((FreeNode("node-1", {"pods": 2, "cpu": 4000}),))]
        ),
        confirmed_absent=st.frozensets(st.tuples(names, st.integers(0, 3)), max_size=2),
        failed_actions=st.lists(outcomes, max_size=2).map(tuple),
    )


def _with_unique_names(pods: Sequence[ObservedPod]) -> tuple[ObservedPod, ...]:
    return tuple(
        replace(pod, name=f"job-{pod.role}-{pod.index}-{number}", uid=f"uid-{number}")
        for number, pod in enumerate(pods)
    )
