"""The CRDs of spot training on a real API server and on the local one: defaults, validation, versions."""

import re
from collections.abc import Iterator

import pytest

from argosy.kinds.migration import CheckpointBackup
from argosy.operator.apis.spot import SPOT
from tests.support.custom_resources import define
from tests.support.differential import Caller, delete, get, post
from tests.support.field_paths import dig
from tests.support.parameters import API_SERVERS
from tests.support.servers import Server
from tests.support.spot_jobs import (
    JOBS,
    REMOVED,
    TEMPLATES,
    VMS,
    Json,
    backup,
    instance_template,
    spot_job,
    spot_vm,
)

CONFIG = "checkpointConfig"
BACKUPS = "/apis/migration.dcnlab.com/{}/namespaces/default/checkpointbackups"


@pytest.fixture(scope="module", params=API_SERVERS)
def caller(request: pytest.FixtureRequest) -> Iterator[Caller]:
    name = "real_apiserver" if request.param == "kubernetes" else "local_apiserver"
    server: Server = request.getfixturevalue(name)
    with Caller(server) as caller:
        define(caller, SPOT.custom_resources)
        yield caller


def dry_run(path: str) -> str:
    return f"{path}?dryRun=All&fieldValidation=Strict"


def test_case_1_readme_manifests_are_accepted_and_defaulted(caller: Caller) -> None:
    vm = caller.send(post(dry_run(VMS), spot_vm()))
    job = caller.send(post(dry_run(JOBS), spot_job(changes={"replicas": REMOVED})))
    assert (vm.code, job.code) == (201, 201), (vm.body, job.body)
    assert dig(vm.body, "spec.gcp.diskSizeGB") == 100
    assert dig(vm.body, "spec.gcp.diskType") == "pd-standard"
    assert dig(vm.body, "spec.gcp.externalIP") is True
    assert dig(job.body, "spec.replicas") == 2
    assert dig(job.body, "spec.recovery.maxRestarts") == 3
    assert dig(job.body, f"spec.{CONFIG}.level") == "auto"
    assert dig(job.body, f"spec.{CONFIG}.retention.keepLast") == 5
    assert dig(job.body, "spec.jobTemplate") == spot_job()["spec"]["jobTemplate"]  # type: ignore[index]


def test_the_later_shape_is_accepted(caller: Caller) -> None:
    later: Json = {"spotInstanceVMRef": REMOVED, "instanceTemplateRef": {"name": "my-training-vm"}}
    answer = caller.send(post(dry_run(TEMPLATES), instance_template()))
    assert (answer.code, dig(answer.body, "spec.preemptible")) == (201, True), answer.body
    answer = caller.send(post(dry_run(JOBS), spot_job(changes=later)))
    assert answer.code == 201, answer.body


BOTH: Json = {"instanceTemplateRef": {"name": "b"}}
INVALID_JOBS: dict[str, tuple[Json, str]] = {
    "replicas 0: rejected": ({"replicas": 0}, r"spec.replicas: .*greater than or equal to 1"),
    "both refs: rejected": (
        BOTH,
        r"spec: .*exactly one of spotInstanceVMRef and instanceTemplateRef must be set",
    ),
    "neither ref: rejected": (
        {"spotInstanceVMRef": REMOVED},
        r"spec: .*exactly one of spotInstanceVMRef and instanceTemplateRef must be set",
    ),
    "a ref without a name: rejected": ({"spotInstanceVMRef": {}}, r"spec: .*exactly one of"),
    **{
        f"interval {text!r}: rejected": (
            {f"{CONFIG}.checkpointInterval": text},
            rf'spec.{CONFIG}.checkpointInterval: .*invalid duration "{re.escape(text)}"',
        )
        for text in ("30x", "-5m", "0s", "", "5", "1h 30m")
    },
    **{
        f"repository {text!r}: rejected": (
            {f"{CONFIG}.checkpointImageRepo": text},
            rf'spec.{CONFIG}.checkpointImageRepo: .*invalid repository "{re.escape(text)}"',
        )
        for text in ("https://gcr.io/a", "a:tag", "gcr.io/a@sha256:0", "gcr.io//a", "gcr.io/A", "gcr.io", "")
    },
    "no credentials: rejected": (
        {"gcpCredentialsSecretRef": REMOVED},
        r"spec.gcpCredentialsSecretRef: Required value",
    ),
    "credentials without a name: rejected": (
        {"gcpCredentialsSecretRef.name": ""},
        r"spec.gcpCredentialsSecretRef.name: .*must not be empty",
    ),
    "no jobTemplate: rejected": ({"jobTemplate": REMOVED}, r"spec.jobTemplate: Required value"),
    "unknown level: rejected": ({f"{CONFIG}.level": "Disk"}, rf"spec.{CONFIG}.level: Unsupported value"),
    "keepLast 0: rejected": (
        {f"{CONFIG}.retention": {"keepLast": 0}},
        rf"spec.{CONFIG}.retention.keepLast: .*greater than or equal to 1",
    ),
    "bucket without type: rejected": (
        {f"{CONFIG}.checkpointStorage": {"bucket": "b"}},
        rf"spec.{CONFIG}.checkpointStorage.type: .*required if bucket or pathPrefix is set",
    ),
    **{
        f"{storage}: rejected, as it names no bucket or claim": (
            {f"{CONFIG}.checkpointStorage": storage},
            rf"spec.{CONFIG}.checkpointStorage.bucket: .*required if type is gcs, s3, pvc",
        )
        for storage in ({"type": "pvc"}, {"type": "S3", "pathPrefix": "p"}, {"type": "gcs", "bucket": "/"})
    },
    "unknown storage type: rejected": (
        {f"{CONFIG}.checkpointStorage": {"type": "nfs"}},
        rf"spec.{CONFIG}.checkpointStorage.type: .*unknown storage type",
    ),
    **{
        f"{storage} at level App: rejected, as checkpoints cannot be sent there": (
            {f"{CONFIG}.level": "App", f"{CONFIG}.checkpointStorage": storage},
            rf"spec.{CONFIG}.checkpointStorage.{message}",
        )
        for storage, message in (
            ({"type": "gcs", "bucket": "gs://b"}, "bucket: .*must be the name of a bucket, without a scheme"),
            ({"type": "s3", "bucket": "b/../c"}, r"bucket: .*must not contain '.', '..' or an empty name"),
            ({"type": "s3", "bucket": "b", "pathPrefix": "a//c"}, "pathPrefix: .*or an empty name"),
            ({"type": "GCS", "bucket": "b", "pathPrefix": "./c"}, "pathPrefix: .*must not contain '.'"),
            ({"type": "s3", "bucket": "b", "credentials": {"name": "a_b"}}, "credentials.name: .*a_b"),
            ({"type": "s3", "bucket": "b", "credentials": {}}, "credentials.name: Required value"),
            ({"type": "pvc", "bucket": "b", "credentials": {"name": "a"}}, "credentials: .*type gcs or s3"),
        )
    },
    "credentials at another level: rejected, as nothing uses them": (
        {f"{CONFIG}.checkpointStorage": {"type": "s3", "bucket": "b", "credentials": {"name": "a"}}},
        rf"spec.{CONFIG}.checkpointStorage.credentials: .*supported only with level App",
    ),
    "exit code 256: rejected": (
        {"recovery": {"recoverOnExitCodes": [256]}},
        r"spec.recovery.recoverOnExitCodes\[0\]: .*less than or equal to 255",
    ),
    "unknown strategy: rejected": ({"recovery": {"strategy": "x"}}, r"spec.recovery.strategy: Unsupported"),
}


@pytest.mark.parametrize(("changes", "message"), INVALID_JOBS.values(), ids=INVALID_JOBS.keys())
def test_case_2_invalid_job_is_rejected_with_one_message(caller: Caller, changes: Json, message: str) -> None:
    answer = caller.send(post(dry_run(JOBS), spot_job(changes=changes)))
    assert answer.code == 422, answer.body
    assert re.search(message, str(dig(answer.body, "message")))
    causes = dig(answer.body, "details.causes")
    assert isinstance(causes, list)
    # A further cause without a field says that the rules were not checked.
    assert len([cause for cause in causes if dig(cause, "field") != "<nil>"]) == 1


VALID_JOBS: dict[str, Json] = {
    **{
        f"interval {text}: accepted": {f"{CONFIG}.checkpointInterval": text}
        for text in ("30m", "1h30m", "0.5h", "100ms", "15µs")
    },
    **{
        f"repository {text}: accepted": {f"{CONFIG}.checkpointImageRepo": text}
        for text in ("a", "team/a_b", "localhost/a", "localhost:5000/x/y", "gcr.io/p/c", "10.0.0.1:5000/a")
    },
    "storage type in upper case: accepted": {
        f"{CONFIG}.checkpointStorage": {"type": "GCS", "bucket": "b", "pathPrefix": "p"}
    },
    "bucket with a path and credentials at level App: accepted": {
        f"{CONFIG}.level": "App",
        f"{CONFIG}.checkpointStorage": {
            "type": "S3",
            "bucket": "/b/team",
            "pathPrefix": "a b/",
            "credentials": {"name": "s3.keys"},
        },
    },
    "path that no bucket has, at a level that does not use it: accepted, as before": {
        f"{CONFIG}.checkpointStorage": {"type": "gcs", "bucket": "gs://b", "pathPrefix": "../p"}
    },
    "a jobTemplate that is no object: accepted, and reported by the operator": {"jobTemplate": "x"},
}


@pytest.mark.parametrize("changes", VALID_JOBS.values(), ids=VALID_JOBS.keys())
def test_valid_job_is_accepted(caller: Caller, changes: Json) -> None:
    answer = caller.send(post(dry_run(JOBS), spot_job(changes=changes)))
    assert answer.code == 201, answer.body


INVALID_VMS: dict[str, tuple[Json, str]] = {
    "gpu.count 0: rejected": ({"gpu.count": 0}, r"spec.gpu.count: .*greater than or equal to 1"),
    "gpu without a type: rejected": ({"gpu.type": REMOVED}, r"spec.gpu.type: Required value"),
    "no zone: rejected": ({"gcp.zone": REMOVED}, r"spec.gcp.zone: Required value"),
    "empty zone: rejected": ({"gcp.zone": ""}, r"spec.gcp.zone: .*at least 1 char"),
    "region of another zone: rejected": (
        {"gcp.region": "us-central"},
        r"spec.gcp.region: .*must be the region of the zone",
    ),
    "disk of 0 GB: rejected": ({"gcp.diskSizeGB": 0}, r"spec.gcp.diskSizeGB: .*greater than or equal to 1"),
    "no image: rejected": ({"vmImage": REMOVED}, r"spec.vmImage: Required value"),
}


@pytest.mark.parametrize(("changes", "message"), INVALID_VMS.values(), ids=INVALID_VMS.keys())
def test_case_2_invalid_vm_is_rejected(caller: Caller, changes: Json, message: str) -> None:
    for path, body in ((VMS, spot_vm(changes=changes)), (TEMPLATES, instance_template(changes=changes))):
        answer = caller.send(post(dry_run(path), body))
        assert answer.code == 422, answer.body
        assert re.search(message, str(dig(answer.body, "message")))


def test_region_of_the_zone_is_accepted(caller: Caller) -> None:
    answer = caller.send(post(dry_run(VMS), spot_vm(changes={"gcp.region": "us-central1"})))
    assert answer.code == 201, answer.body


def test_case_4_backup_of_the_old_version_is_readable_in_the_new_one(caller: Caller) -> None:
    old, new = (BACKUPS.format(version) for version in ("v1alpha1", "v1"))
    assert caller.send(post(old, backup("two-versions", "v1alpha1"))).code == 201
    stored = caller.send(get(f"{new}/two-versions")).body
    assert dig(stored, "apiVersion") == CheckpointBackup.resource.api_version
    assert dig(stored, "spec.podRef.name") == "p"
    assert dig(caller.send(get(f"{old}/two-versions")).body, "apiVersion") == "migration.dcnlab.com/v1alpha1"
    assert caller.send(delete(f"{new}/two-versions")).code == 200
    assert caller.send(get(f"{old}/two-versions")).code == 404
