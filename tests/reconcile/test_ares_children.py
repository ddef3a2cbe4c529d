"""Tests for the names and labels of the children of an AresJob."""

from typing import cast

import pytest
from msgspec.structs import replace

from argosy.kinds.aresjob import AresJob
from argosy.kinds.kubernetes import Service
from argosy.kinds.pod_groups import VolcanoPodGroup
from argosy.plan.children import child_body
from argosy.reconcile.pod_renderer import PodRenderer
from argosy.reconcile.render import Json
from argosy.reconcile.render_context import Helper, RenderContext
from argosy.workload.children import job_owner
from argosy.workload.model import Workload
from argosy.workload.plan import CreatePod
from tests.support.aresjobs import API, job, simulate, workload_of

LABELS = {"ares.io/group-name": "ares.io", "ares.io/job-name": "job", "ares.io/replica-type": "worker"}
KEYS = {"ares.io/job-priority": "5", "ares.io/ares-queue": "no label!"}


def rendered(workload: Workload) -> Json:
    maker = PodRenderer(RenderContext(Helper("helper"), "https://x"), lambda uid: uid)
    name = API.pod_name(workload, "worker", 1, 1, 0)
    return maker.for_job(workload, API.inject).render(CreatePod("worker", 1, 1, 0), name)


def metadata(body: Json) -> dict[str, dict[str, str]]:
    return cast("dict[str, dict[str, str]]", body["metadata"])


def names(body: Json) -> tuple[str, str]:
    fields = cast("Json", body["metadata"])
    return str(fields["name"]), str(fields.get("generateName", ""))


def handing() -> AresJob:
    gang = {"schedulingPolicy": {"minAvailable": 2}}
    obj = job(roles={"worker": {"replicas": 2}}, runPolicy=gang)
    return replace(obj, metadata=replace(obj.metadata, annotations={**KEYS, "mine": "1"}))


def test_a_pod_of_a_role_without_restarts_is_named_by_role_and_index() -> None:
    body = rendered(workload_of(job(roles={"worker": {"replicas": 2}})))
    pod_metadata, spec = metadata(body), cast("dict[str, object]", body["spec"])
    assert names(body) == ("job-worker-1", "")
    assert LABELS.items() <= pod_metadata["labels"].items()
    assert pod_metadata["labels"]["ares.io/replica-index"] == "1"
    assert (spec["hostname"], spec["subdomain"]) == ("job-worker-1", "job-worker")


VARIABLES = {
    "a standalone job: the user's own variables and no others": ("standalone", ["MINE"]),
    "a custom job: which pod it is, and where the others are": (
        "custom",
        [
            *("ARGOSY_JOB", "ARGOSY_NAMESPACE", "ARGOSY_ROLE", "ARGOSY_INDEX", "ARGOSY_ATTEMPT"),
            *("MODULE", "INDEX", "worker", "ROLE_WORKER", "MINE"),
        ],
    ),
}


@pytest.mark.parametrize(("framework", "want"), VARIABLES.values(), ids=VARIABLES.keys())
def test_variables_of_pods(framework: str, want: list[str]) -> None:
    container = {"name": "main", "image": "x", "env": [{"name": "MINE", "value": "1"}]}
    pods = {"replicas": 2, "template": {"spec": {"containers": [container, {"name": "side", "image": "x"}]}}}
    body = rendered(workload_of(job(framework, roles={"worker": pods})))
    first, second = cast("dict[str, list[dict[str, list[Json]]]]", body["spec"])["containers"]
    assert [variable["name"] for variable in first["env"]] == want
    assert [variable["name"] for variable in second.get("env", [])] == want[:-1]


def test_a_pod_of_another_policy_has_a_suffix_and_the_same_host_name() -> None:
    body = rendered(workload_of(job(roles={"worker": {"replicas": 2, "restartPolicy": "OnFailure"}})))
    spec = cast("dict[str, object]", body["spec"])
    name, prefix = names(body)
    assert prefix == "job-worker-1-"
    assert name.startswith(prefix)
    assert len(name) == len(prefix) + 5
    assert (spec["hostname"], spec["subdomain"]) == ("job-worker-1", "job-worker")


def test_a_service_finds_pods_by_the_labels_of_this_api_alone() -> None:
    (service,) = simulate(job()).start().applied(Service)
    body = child_body(job_owner(workload_of(job())), service)
    assert cast("dict[str, object]", body["spec"])["selector"] == LABELS
    assert LABELS.items() <= metadata(body)["labels"].items()


def test_new_pods_and_groups_have_propagated_metadata() -> None:
    workload = workload_of(handing())
    (group,) = simulate(handing()).start().applied(VolcanoPodGroup)
    for body in (rendered(workload), child_body(job_owner(workload), group)):
        child_metadata = metadata(body)
        assert KEYS.items() <= child_metadata["annotations"].items()
        assert child_metadata["labels"]["ares.io/job-priority"] == "5"
        assert "ares.io/ares-queue" not in child_metadata["labels"], "it can be no label"
