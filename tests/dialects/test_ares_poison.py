"""Jobs made at random from the schema: never a crash, always a clear status, and cured by an edit."""

import copy
from collections.abc import Iterator, Mapping
from typing import cast

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from argosy.dialects.ares.profiles import PROFILES
from argosy.kinds.aresjob import AresJob, AresJobKind, AresJobSpec
from argosy.kinds.crd import schema_of
from argosy.kinds.definition import PRESERVE
from argosy.testing.aresjobs import DIALECT, job, played
from argosy.testing.workloads import pods
from argosy.workload.model import Problems, Workload
from argosy.workload.observed import Observed, ObservedPod

Schema = Mapping[str, object]

NAMES = ("worker", "master", "launcher", "chief", "ps", "scheduler", "etcd", "Bad_Name", "")
WORDS = ("", "Never", "OnFailure", "Always", "ExitCode", "AnyPod", "AllPods", "Running", "None", "Job", "x")
CONTAINERS = st.sampled_from([*PROFILES, "main"]).map(lambda name: {"name": name, "image": "image"})
TEMPLATES = st.one_of(
    st.fixed_dictionaries({"spec": st.fixed_dictionaries({"containers": st.lists(CONTAINERS, max_size=2)})}),
    st.sampled_from([{}, {"spec": {}}, {"spec": None}, {"spec": {"containers": [None, 3]}}, {"spec": "x"}]),
)


def values(schema: Schema, name: str = "") -> st.SearchStrategy[object]:
    """What the schema lets in, and sometimes nothing at all."""
    if name == "template":
        return TEMPLATES
    if name == "frameworkType":
        return st.sampled_from([*PROFILES, "pytroch", ""])
    if schema.get("x-kubernetes-int-or-string"):
        return st.sampled_from([1, "2Gi"])
    match schema.get("type"):
        case "string":
            return st.sampled_from([*NAMES, *WORDS, "/etc/mpi/hostfile", "/h", "a,,b", "ompi"])
        case "integer":
            return st.sampled_from([0, 1, 2, 3, -1, 65536, 2**31 - 1])
        case "boolean":
            return st.booleans()
        case "array":
            return st.lists(values(cast("Schema", schema["items"])), max_size=3)
    return st.one_of(_objects(schema), st.none()) if schema.get("nullable") else _objects(schema)


def _objects(schema: Schema) -> st.SearchStrategy[object]:
    if "additionalProperties" in schema:
        inner = values(cast("Schema", schema["additionalProperties"]))
        return st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    parts = {name: values(one, name) for name, one in cast("dict[str, Schema]", schema["properties"]).items()}
    if schema.get(PRESERVE):
        parts["unheardOf"] = st.integers(0, 3)
    return st.fixed_dictionaries({}, optional=parts)


SPECS = values(schema_of(AresJobSpec))


@given(SPECS)
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_no_job_crashes_anything_and_each_is_cured(spec: object) -> None:
    assert isinstance(spec, dict)
    obj = replace(job(), spec=copy.deepcopy(spec))
    lowered = DIALECT.lower(obj)
    first = played(obj).saw()
    if isinstance(lowered, Problems):
        assert (first.phase, first.condition("Failed")[:2]) == ("Failed", ("True", "InvalidDefinition"))
        assert first.condition("Failed")[2] == str(lowered)
        assert first.obj.spec == spec
    else:
        assert first.phase == "Pending"
        _renders(lowered)
        _ends(first.obj)
    cured = replace(
        first, obj=replace(first.obj, metadata=replace(obj.metadata, generation=9), spec=job().spec)
    )
    assert cured.saw().saw().saw(*pods("R")).phase in ("Running", "Starting")


def _renders(workload: Workload) -> None:
    for role in workload.roles.values():
        injection = DIALECT.inject(workload, role, 0)
        assert all(isinstance(value, str) for value in injection.env.values())


def _ends(obj: AresJob) -> None:
    """Whatever its policies, a job whose pods all end ends."""
    workload = DIALECT.lower(obj)
    assert isinstance(workload, Workload)
    if workload.suspended or workload.gang or workload.total > 50:
        return
    there = tuple(_all(workload))
    ended = played(obj).saw().saw().went(Observed(pods=there)).went(Observed(pods=there))
    restarted = any(role.restart == "Always" for role in workload.roles.values())
    assert restarted or ended.phase == "Succeeded"


def _all(workload: Workload) -> Iterator[ObservedPod]:
    for role in workload.roles.values():
        yield from pods("S" * role.replicas, role.name)


def test_a_definition_knows_types_only() -> None:
    """Values are judged by the operator: what users could always store is stored."""
    text = msgspec.json.encode(schema_of(AresJobKind)).decode()
    assert not any(f'"{word}":' in text for word in ("enum", "pattern", "minimum", "minItems", "minLength"))
