"""Tests which AresJobs may have elastic roles, and what is wrong with others."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from argosy.frameworks.registry import find_framework
from argosy.kinds.aresjob import AresJob
from argosy.workload.elastic import adapts_to_capacity
from argosy.workload.model import Elastic, RestartPolicy
from tests.support.aresjobs import job, problems, template, workload_of
from tests.support.workloads import role, workload

WORKER = "spec.roleSpecs.worker.elastic"
BOUNDS: Mapping[str, object] = {"min": 2, "max": 8, "multipleOf": 2}
PORTS = list(range(20001, 20011))
DASK = {
    "scheduler": {"template": template("dask", ports=[{"containerPort": 1}, {"containerPort": 2}])},
    "leadworker": {"template": template("dask", ports=[{"containerPort": 3}])},
    "launcher": {"template": template("dask", ports=[{"containerPort": 4}])},
}
DYNAMIC = {"tensorflow": {"enableDynamicWorker": True}}
WITH_ETCD = {"bagua": {"enableElastic": True}}


def elastic(framework: str = "custom", /, *, replicas: int = 4, **fields: object) -> AresJob:
    """Return a job whose workers are elastic; `worker` are their other fields, `roles` other roles."""
    worker, others = fields.pop("worker", {}), fields.pop("roles", {})
    assert isinstance(worker, dict)
    assert isinstance(others, dict)
    workers = {"replicas": replicas, "elastic": BOUNDS, **worker}
    obj = job(framework, roles={**others, "worker": workers})
    return replace(obj, spec={**obj.spec, **fields})


SUPPORTED: dict[str, AresJob] = {
    "custom": elastic(),
    "standalone": elastic("standalone"),
    "pytorch without a master": elastic("pytorch"),
    "tensorflow with dynamic workers": elastic("tensorflow", framework=DYNAMIC, roles={"ps": {}}),
    "tensorflow with dynamic workers and a chief": elastic(
        "tensorflow", framework=DYNAMIC, roles={"ps": {}, "chief": {}}
    ),
    "dask": elastic("dask", roles=DASK),
    "bagua with etcd": elastic("bagua", framework=WITH_ETCD, roles={"etcd": {}}, availablePorts=PORTS),
}
"""Jobs that must be valid."""


@pytest.mark.parametrize("obj", SUPPORTED.values(), ids=SUPPORTED.keys())
def test_supported_framework_adapts_its_workers_to_the_capacity(obj: AresJob) -> None:
    translated = workload_of(obj)
    assert translated.roles["worker"].elastic == Elastic(2, 8, 2)
    assert translated.roles["worker"].restart == "OnFailure", "lost pods are replaced without being asked"
    assert adapts_to_capacity(translated, translated.roles["worker"])


REFUSED: dict[str, tuple[AresJob, str]] = {
    "mpi": (
        elastic("mpi", roles={"launcher": {}}),
        f"{WORKER}: not supported with framework mpi, whose number of pods is fixed while it runs",
    ),
    "tensorflow without dynamic workers": (
        elastic("tensorflow"),
        f"{WORKER}: not supported with framework tensorflow unless"
        " spec.framework.tensorflow.enableDynamicWorker is true",
    ),
    "bagua without etcd": (
        elastic("bagua", roles={"master": {}}, availablePorts=PORTS),
        f"{WORKER}: not supported with framework bagua unless spec.framework.bagua.enableElastic is true",
    ),
    "pytorch with a master": (
        elastic("pytorch", roles={"master": {}}),
        "spec.roleSpecs.master: not supported with elastic workers: one of them is rank 0",
    ),
    "role that has one pod": (
        job("pytorch", roles={"master": {"elastic": {"min": 1, "max": 2}}}),
        "spec.roleSpecs.master.elastic: not supported for role master of framework pytorch; only worker may"
        " be elastic",
    ),
    "parameter servers, which workers do not learn of": (
        job(
            "tensorflow",
            framework=DYNAMIC,
            roles={"worker": {}, "ps": {"elastic": {"min": 1, "max": 2}}},
        ),
        "spec.roleSpecs.ps.elastic: not supported for role ps of framework tensorflow; only worker",
    ),
    "restartPolicy Never": (
        elastic(worker={"restartPolicy": "Never"}),
        f"{WORKER}: not supported with restartPolicy Never, with which lost pods are not replaced; must be"
        " OnFailure or Always or ExitCode",
    ),
    "restartScope Job": (
        elastic(runPolicy={"restartScope": "Job"}),
        f"{WORKER}: not supported with spec.runPolicy.restartScope Job, which replaces all pods when one is",
    ),
    "replicas above max": (
        elastic(replicas=10),
        "spec.roleSpecs.worker.replicas: 10 is not between elastic.min 2 and elastic.max 8",
    ),
    "replicas that are not a multiple": (
        elastic(replicas=5),
        "spec.roleSpecs.worker.replicas: replicas 5 is not a multiple of 2; write 4 or 6",
    ),
    "max that is not a multiple": (
        elastic(worker={"elastic": {"min": 2, "max": 7, "multipleOf": 2}}),
        f"{WORKER}: max 7 is not a multiple of 2; write 6 or 8",
    ),
    "no max": (elastic(worker={"elastic": {"min": 2}}), "spec.roleSpecs[...].elastic: object missing"),
    "window that is no duration": (
        elastic(worker={"elastic": {**BOUNDS, "stabilizationWindow": "soon"}}),
        "spec.roleSpecs[...].elastic.stabilizationWindow: expected `str` matching regex",
    ),
    "sizes that Bagua refuses": (
        elastic(
            "bagua",
            framework={"bagua": {"enableElastic": True, "minReplicas": 4, "maxReplicas": 6}},
            roles={"etcd": {}},
            availablePorts=PORTS,
        ),
        f"{WORKER}: min 2 is less than spec.framework.bagua.minReplicas 4; {WORKER}: max 8 is greater than"
        " spec.framework.bagua.maxReplicas 6",
    ),
    "name whose last pod would be too long": (
        job(name="j" * 51, roles={"worker": {"elastic": {"min": 1, "max": 99_999}}}),
        "metadata.name: the name of its last pod of role worker, ",
    ),
}


@pytest.mark.parametrize(("obj", "want"), REFUSED.values(), ids=REFUSED.keys())
def test_refusal_names_the_field(obj: AresJob, want: str) -> None:
    assert want in problems(obj)


OTHERS: dict[str, dict[str, object]] = {"mpi": {"launcher": {}}, "dask": dict(DASK)}
SAME_RULE: dict[str, dict[str, object]] = {
    "custom": {},
    "standalone": {},
    "pytorch": {},
    "dask": {},
    "mpi": {},
    "tensorflow": {},
    "tensorflow with dynamicWorkers": {"dynamicWorkers": True},
}


@pytest.mark.parametrize(("name", "options"), SAME_RULE.items(), ids=SAME_RULE.keys())
def test_frameworks_allow_it_that_resize_training_runs_while_they_run(
    name: str, options: dict[str, object]
) -> None:
    """The profiles of AresJobs must agree with the rules of the frameworks' adapters."""
    framework = name.partition(" ")[0]
    adapter = find_framework(framework)
    assert adapter is not None
    others = [role(other, 1) for other in OTHERS.get(framework, {})]
    workers = role(restart=RestartPolicy.ON_FAILURE, elastic=Elastic(1, 4))
    run = replace(workload(*others, workers), options=options)
    resizes = adapts_to_capacity(replace(run, rules=adapter.rules(run)), workers)
    own = DYNAMIC if options else {}
    refused = problems(elastic(framework, roles=OTHERS.get(framework, {}), framework=own))
    assert (refused == "") is resizes, refused
