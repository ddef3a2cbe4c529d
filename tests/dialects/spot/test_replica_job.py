"""Jobs of replicas: what an API server says to them, and what stays of the template."""

from collections.abc import Iterator
from typing import cast

import msgspec
import pytest
from msgspec.structs import replace

from argosy.dialects.spot.job_spec import SpotJob, read_job
from argosy.dialects.spot.record import APP_RESUME, CHECKPOINT_IMAGE, Incarnation
from argosy.dialects.spot.replica_job import Run, check_job, replica_job, unchanged, with_whole_pod
from argosy.kinds.spot import SpotInstanceJob
from argosy.plan.children import Owner, child_body
from argosy.reconcile.pod_renderer import PodRenderer
from argosy.reconcile.render_context import Helper, RenderContext
from argosy.workload.capacity import requests
from tests.support.differential import Caller, post
from tests.support.field_paths import dig
from tests.support.parameters import API_SERVERS
from tests.support.servers import Server
from tests.support.spot_jobs import Json, spot_job

JOBS = "/apis/batch/v1/namespaces/default/jobs?dryRun=All&fieldValidation=Strict"
TERM = "spec.template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
POD = "jobTemplate.spec.template.spec"
RESTORED = Incarnation(
    3,
    7,
    node="n1",
    instance="vm",
    job="j-0-7",
    mode=CHECKPOINT_IMAGE,
    images={"training": "r/c:t-7"},
    source="b",
)


@pytest.fixture(scope="module", params=API_SERVERS)
def caller(request: pytest.FixtureRequest) -> Iterator[Caller]:
    name = "real_apiserver" if request.param == "kubernetes" else "local_apiserver"
    server: Server = request.getfixturevalue(name)
    with Caller(server) as caller:
        yield caller


def read(changes: Json | None = None, name: str = "my-training-job") -> tuple[SpotJob, Owner]:
    body = spot_job(changes=changes)
    cast("Json", body["metadata"]).update({"name": name, "namespace": "default", "uid": "u", "generation": 1})
    obj = msgspec.convert(body, SpotInstanceJob)
    job = read_job(obj)
    assert isinstance(job, SpotJob)
    return job, Owner.from_object(obj)


def test_case_5_the_job_of_the_readme_is_accepted(caller: Caller) -> None:
    job, owner = read()
    fresh = Incarnation(0, 7, node="n1", job="j-0-7")
    for child in (
        check_job(job, unchanged),
        replica_job(job, Run(0, fresh), unchanged),
        replica_job(job, Run(0, RESTORED), unchanged),
    ):
        answer = caller.send(post(JOBS, child_body(owner, child)))
        assert answer.code == 201, answer.body
        assert dig(answer.body, "spec.podFailurePolicy.rules.0.action") == "Ignore"


def test_a_restored_job_has_the_images_and_says_where_they_come_from() -> None:
    job, _ = read({"checkpointConfig.checkpointRepoCredentialRef": {"name": "r"}})
    body = cast("Json", replica_job(job, Run(1, RESTORED), unchanged).body)
    assert dig(body, "metadata.annotations") == {
        "training.dcnlab.com/incarnation": "3",
        "training.dcnlab.com/checkpoint-updated": "true",
        "training.dcnlab.com/restored-from": "b",
    }
    spec = dig(body, "spec.template.spec")
    assert dig(spec, "containers.0.image") == "r/c:t-7"
    assert dig(spec, "imagePullSecrets") == [{"name": "my-training-job-checkpoint-pull"}]
    assert dig(body, "spec.template.metadata.labels.training~dcnlab~com/provisioned-instance") == "vm"


def test_every_alternative_of_the_users_affinity_is_bound_to_the_node() -> None:
    zones: list[Json] = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in "ab"
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": zones}}
    job, _ = read({f"{POD}.affinity": {"nodeAffinity": required, "podAffinity": {}}})
    body = cast("Json", replica_job(job, Run(0, Incarnation(0, 7, node="n1", job="x")), unchanged).body)
    bound = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    assert dig(body, f"{TERM}.nodeSelectorTerms") == [{**zone, **bound} for zone in zones]
    assert dig(body, "spec.template.spec.affinity.podAffinity") == {}


def test_what_the_user_has_set_stays() -> None:
    env: list[Json] = [{"name": "ARGOSY_RESUME", "value": "mine"}]
    containers: list[Json] = [{"name": "training", "image": "x", "env": env}]
    policy: Json = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}}]}
    job, _ = read(
        {
            f"{POD}.containers": containers,
            "jobTemplate.spec.podFailurePolicy": policy,
            "jobTemplate.metadata": {"labels": {"team": "a", "training.dcnlab.com/job-replica": "9"}},
        }
    )
    body = cast("Json", replica_job(job, Run(0, Incarnation(0, 7, node="n1", job="x")), unchanged).body)
    listed = cast("list[Json]", dig(body, "spec.template.spec.containers.0.env"))
    variables = {variable["name"]: variable["value"] for variable in listed}
    assert variables == {"ARGOSY_RESUME": "mine", "ARGOSY_REPLICA_INDEX": "0", "ARGOSY_INCARNATION": "0"}
    assert dig(body, "spec.podFailurePolicy") == policy
    assert dig(body, "metadata.labels.team") == "a"
    assert dig(body, "metadata.labels.training~dcnlab~com/job-replica") == "0"


SAVES_ITSELF: Json = {
    "checkpointConfig.level": "App",
    "checkpointConfig.checkpointStorage": {"type": "pvc", "bucket": "checkpoints"},
}
PODS = PodRenderer(RenderContext(Helper("argosy/helper:1"), "https://operator", "PEM"), lambda _uid: "token")


def test_the_folder_of_a_job_with_the_longest_name_is_a_valid_file_name() -> None:
    folders = []
    for last in "ab":
        job, _ = read({**SAVES_ITSELF}, name="a" * 252 + last)
        uri = replace(job, uid="0123456789").checkpoint_policy("replica-0", has_saved=True).uri
        folders.append(uri.rpartition("/")[2])
        assert len(folders[-1]) <= 255
    assert folders[0] != folders[1], "jobs with other names have other folders"


RESUMED = Incarnation(2, 7, node="n1", job="j-1-7", mode=APP_RESUME)


def test_a_job_whose_training_saves_itself_is_accepted_with_its_helpers(caller: Caller) -> None:
    job, owner = read(SAVES_ITSELF)
    resumed = replica_job(job, Run(1, RESUMED), PODS.with_checkpoint)
    for child in (check_job(job, PODS.with_checkpoint), resumed):
        answer = caller.send(post(JOBS, child_body(owner, child)))
        assert answer.code == 201, answer.body
    spec = dig(cast("Json", resumed.body), "spec.template.spec")
    assert dig(spec, "initContainers.0.name") == "argosy-checkpoint-init"
    assert dig(spec, "initContainers.1.restartPolicy") == "Always"
    variables = {
        item["name"]: item.get("value") for item in cast("list[Json]", dig(spec, "containers.0.env"))
    }
    assert (variables["ARGOSY_RESUME"], variables["ARGOSY_REPLICA_INDEX"]) == ("1", "1")
    assert variables["ARGOSY_CHECKPOINT_DIR"] == "/argosy/checkpoints"
    assert variables["ARGOSY_CHECKPOINT_URI"] == "pvc://checkpoints/default/my-training-job"


IN_BUCKETS: dict[str, tuple[Json, str, str]] = {
    "gcs: a folder of the replica in the bucket": (
        {"type": "gcs", "bucket": "b"},
        "gs://b/default/my-training-job",
        "gs://b/default/my-training-job-01234567",
    ),
    "s3: below the prefix": (
        {"type": "S3", "bucket": "/b/team/", "pathPrefix": "/runs/"},
        "s3://b/team/runs/default/my-training-job",
        "s3://b/team/runs/default/my-training-job-01234567",
    ),
    "characters that mean something in a URI: quoted for the sidecar only": (
        {"type": "s3", "bucket": "b", "pathPrefix": "50%?/a b#1"},
        "s3://b/50%?/a b#1/default/my-training-job",
        "s3://b/50%25%3F/a%20b%231/default/my-training-job-01234567",
    ),
}


@pytest.mark.parametrize(("storage", "of_program", "of_job"), IN_BUCKETS.values(), ids=IN_BUCKETS.keys())
def test_a_replica_has_a_folder_of_its_own_in_a_bucket_and_restores_that_of_any(
    caller: Caller, storage: Json, of_program: str, of_job: str
) -> None:
    changes = {**SAVES_ITSELF, "checkpointConfig.checkpointStorage": storage}
    job, owner = read(changes)
    child = replica_job(replace(job, uid="0123456789"), Run(1, RESUMED, True), PODS.with_checkpoint)
    answer = caller.send(post(JOBS, child_body(owner, child)))
    assert answer.code == 201, answer.body
    spec = dig(cast("Json", child.body), "spec.template.spec")
    program = variables_of(dig(spec, "containers.0"))
    assert program["ARGOSY_CHECKPOINT_URI"] == of_program
    assert (program["ARGOSY_CHECKPOINT_DIR"], program["ARGOSY_CHECKPOINT_SHARED"]) == (
        "/argosy/checkpoints",
        "0",
    )
    init, sidecar = dig(spec, "initContainers.0"), dig(spec, "initContainers.1")
    for helper in (init, sidecar):
        assert variables_of(helper)["ARGOSY_CHECKPOINT_URI"] == f"{of_job}/replica-1"
    assert cast("list[str]", dig(init, "command"))[-4:-2] == ["--copies", of_job]
    assert variables_of(sidecar)["ARGOSY_KEEP_LAST"] == "5"
    assert {"name": "argosy-checkpoints", "emptyDir": {}} in cast("list[Json]", dig(spec, "volumes"))


@pytest.mark.parametrize("has_saved", [False, True])
def test_only_a_training_that_has_never_saved_starts_without_its_bucket(has_saved: bool) -> None:
    storage: Json = {"type": "gcs", "bucket": "b"}
    job, _ = read({**SAVES_ITSELF, "checkpointConfig.checkpointStorage": storage})
    child = replica_job(job, Run(1, RESUMED, has_saved), PODS.with_checkpoint)
    init = dig(cast("Json", child.body), "spec.template.spec.initContainers.0")
    assert ("--optional" in cast("list[str]", dig(init, "command"))) is not has_saved


def test_only_the_helpers_have_the_credentials_of_a_bucket() -> None:
    storage: Json = {"type": "s3", "bucket": "b", "credentials": {"name": "keys"}}
    job, _ = read({**SAVES_ITSELF, "checkpointConfig.checkpointStorage": storage})
    child = replica_job(job, Run(1, RESUMED), PODS.with_checkpoint)
    spec = dig(cast("Json", child.body), "spec.template.spec")
    volumes = cast("list[Json]", dig(spec, "volumes"))
    [secret] = [volume["name"] for volume in volumes if volume.get("secret") == {"secretName": "keys"}]
    containers = [
        *cast("list[Json]", dig(spec, "initContainers")),
        *cast("list[Json]", dig(spec, "containers")),
    ]
    mounting = {
        container["name"]
        for container in containers
        if secret in [mount["name"] for mount in cast("list[Json]", container["volumeMounts"])]
    }
    assert mounting == {"argosy-checkpoint-init", "argosy-checkpoint"}


def variables_of(container: object) -> dict[object, object]:
    return {item["name"]: item.get("value") for item in cast("list[Json]", dig(container, "env"))}


def test_a_place_has_room_for_the_helpers_too() -> None:
    job, _ = read(SAVES_ITSELF)
    whole = with_whole_pod(job, PODS.with_checkpoint)
    assert requests(whole.pod)["cpu"] == requests(job.pod).get("cpu", 0) + 10
    plain, _ = read()
    assert with_whole_pod(plain, PODS.with_checkpoint) is plain
