"""Tests that a further job API only has to be registered: a toy API runs jobs, and the CLI shows them."""

from typing import ClassVar

import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from argosy.cli.jobkinds import find, find_all, summarize
from argosy.dialects.base import JobApi, StatusInput, bare_workload
from argosy.frameworks.base import Injection
from argosy.kinds.crd import crd_for
from argosy.kinds.crd_options import CrdOptions
from argosy.kinds.kubernetes import CustomResourceDefinition
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.resource import Resource
from argosy.operator.apis import registry
from argosy.operator.apis.base import Api, start_controllers
from argosy.operator.apis.summary import JobSummary, job_kind
from argosy.operator.rbac import job_rules
from argosy.workload.model import Problems, Quantifier, Role, RolePolicy, Rules, Workload
from argosy.workload.record_encoding import encode
from tests.support.operator_harness import Scene, until_served

TEMPLATE: dict[str, object] = {"spec": {"containers": [{"name": "main", "image": "image"}]}}


class ToySpec(Struct, frozen=True):
    copies: int = 1


class ToyStatus(Struct, frozen=True):
    phase: str = ""
    argosy: dict[str, object] = field(default_factory=dict)


class ToyJob(Struct, frozen=True):
    """A number of equal pods."""

    resource: ClassVar[Resource] = Resource("toys.example.com", "v1", "ToyJob", "toyjobs")
    crd_options: ClassVar[CrdOptions] = CrdOptions(short_names=("toy",))
    metadata: ObjectMeta
    spec: ToySpec
    status: ToyStatus = ToyStatus()


class ToyDialect:
    kind = ToyJob

    def to_workload(self, obj: ToyJob) -> Workload | Problems:
        policy = RolePolicy(Quantifier.ANY, Quantifier.ALL)
        worker = Role(name="worker", replicas=obj.spec.copies, template=TEMPLATE, policy=policy)
        return replace(
            bare_workload(obj.metadata, ToyJob.resource),
            roles={"worker": worker},
            rules=Rules(succeeded_when=(("worker",),), failed_when=(("worker",),)),
        )

    def to_status(self, obj: ToyJob, view: StatusInput) -> ToyStatus:
        del obj
        return ToyStatus(phase=view.record.phase.value, argosy=encode(view.record))


JOB_API = JobApi(
    dialect=ToyDialect(),
    inject=lambda _workload, _role, _index: Injection(),
    empty=lambda meta: ToyJob(meta, ToySpec()),
)


def _summarize(job: ToyJob) -> JobSummary:
    return JobSummary(
        kind="ToyJob",
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        uid=job.metadata.uid,
        created=job.metadata.creation_timestamp,
        framework="",
        phase=job.status.phase,
        reason="",
        message="",
        attempt=1,
        restarts=0,
        started=True,
    )


TOY = Api(
    name="toy",
    custom_resources=(ToyJob,),
    jobs=(job_kind(ToyJob, "toy", _summarize),),
    rules=job_rules(ToyJob.resource.group, ToyJob.resource.plural),
    start=start_controllers(lambda manager, _settings: manager.add_jobs(JOB_API)),
)


async def test_a_registered_job_api_runs_and_is_shown(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "APIS", (*registry.APIS, TOY))
    await scene.client.apply(CustomResourceDefinition, crd_for(ToyJob), force=True)
    await until_served(scene.client, ToyJob, scene.namespace)
    body = {"metadata": {"name": "blocks"}, "spec": {"copies": 2}}
    await scene.client.create(ToyJob, body, scene.namespace)
    async with scene.operator(apis=(TOY,)):
        await scene.until_pods("blocks-worker-0", "blocks-worker-1")
        await scene.report_all("Running")

        async def is_running() -> bool:
            return summarize(await find(scene.client, scene.namespace, "toy/blocks")).phase == "Running"

        await scene.until("the job is Running", is_running)
        await scene.report_all("Succeeded")

        async def is_listed_as_succeeded() -> bool:
            jobs = await find_all(scene.client, scene.namespace)
            return [(job.kind, job.phase) for job in map(summarize, jobs)] == [("ToyJob", "Succeeded")]

        await scene.until("the job is listed as Succeeded", is_listed_as_succeeded)
