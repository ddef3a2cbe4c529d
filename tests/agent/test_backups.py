"""Checkpoints by the agent: schedules, images, pods that stop, and everything that can be wrong."""

import base64
import json
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import msgspec
import pytest
from cryptography import x509

from argosy.checkpoint.drivers.registry import Registry
from argosy.checkpoint.image_names import parse_image
from argosy.checkpoint.registry_login import Login
from argosy.engine.objects import Key
from argosy.kinds.migration import BACKUP_FINALIZER
from tests.support.certificates import Authority
from tests.support.checkpoint_node import NODE, CheckpointNode, archive, archive_name, checkpoint_node, meta
from tests.support.fake_apiserver import Fault
from tests.support.files import file_names
from tests.support.raw_server import http
from tests.support.registry import PASSWORD, PROGRAM, USERNAME, RunningRegistry, running_registry

needs_registry = pytest.mark.skipif(PROGRAM is None, reason="docker-registry is not installed")


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[CheckpointNode]:
    async with checkpoint_node(tmp_path) as running:
        yield running


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRegistry]:
    with running_registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRegistry]:
    with running_registry(tmp_path_factory.mktemp("private"), login=True) as running:
        yield running


def target(server: RunningRegistry, secret: str = "") -> dict[str, object]:
    registry: dict[str, object] = {"url": server.address, "repository": "team/train"}
    return {**registry, "secretRef": {"name": secret}} if secret else registry


async def add_secret(
    node: CheckpointNode, name: str, data: Mapping[str, str], namespace: str = "research"
) -> None:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    await node.api.put("secrets", {"metadata": {"name": name, "namespace": namespace}, "data": encoded})


@needs_registry
async def test_checkpoint_is_pushed_once_and_the_archive_deleted(
    node: CheckpointNode, registry: RunningRegistry
) -> None:
    await node.add_pod()
    image = {"name": "main", "image": "team/train:main-17"}
    await node.add_backup(registry=target(registry), containers=[image])
    assert await node.reconcile() is None
    status = node.backup().status
    assert (status.phase, status.message, status.node_name) == ("Completed", "", NODE)
    assert [(item.image_name, item.pushed) for item in status.built_images] == [("team/train:main-17", True)]
    assert status.completion_time is not None
    assert [(item.type, item.status, item.reason) for item in status.conditions] == [
        ("Ready", "True", "CheckpointCompleted")
    ]
    assert node.archives() == []
    async with Registry(registry.address) as client:
        manifest = await client.get_manifest(parse_image(f"{registry.address}/team/train:main-17"))
    assert manifest.digest == status.digests["main"]
    assert manifest.content.annotations is not None
    assert manifest.content.annotations["training.dcnlab.com/owner"] == "research/train"
    assert manifest.content.annotations["org.criu.checkpoint.rootfsImageName"] == "registry.example/main:v1"
    assert await node.reconcile() is None
    assert node.kubelet.dumps == ["main"]
    assert BACKUP_FINALIZER not in node.backup().metadata.finalizers


@needs_registry
async def test_all_containers_are_checkpointed_if_none_is_named(
    node: CheckpointNode, registry: RunningRegistry
) -> None:
    await node.add_pod("train-0", "main", "side-car")
    await node.add_backup(registry=target(registry))
    await node.reconcile()
    status = node.backup().status
    assert status.phase == "Completed"
    assert "one after the other" in status.message
    assert node.kubelet.dumps == ["main", "side-car"]
    stamps = {item.image_name.rpartition("-")[2] for item in status.built_images}
    assert len(stamps) == 1
    assert [item.image_name.rpartition("-")[0] for item in status.built_images] == [
        "team/train:main",
        "team/train:side-car",
    ]


async def test_without_registry_the_image_has_a_local_name_and_is_not_pushed(node: CheckpointNode) -> None:
    await node.add_pod()
    await node.add_backup()
    node.change(host_command=("sh", "-c", "exit 3"))
    await node.reconcile()
    status = node.backup().status
    [image] = status.built_images
    assert status.phase == "Completed"
    assert image.image_name.startswith("localhost/checkpoint-train-0-main:2")
    assert not image.pushed
    [kept] = node.archives()
    assert kept.startswith("image-checkpoint-train-0_research-main-")
    assert f"{kept} and not in the container runtime: sh: exit code 3" in status.message


async def test_image_without_registry_is_given_to_the_container_runtime(
    node: CheckpointNode, tmp_path: Path
) -> None:
    await node.add_pod()
    await node.add_backup()
    # The words that follow are those of ctr; the last one is the archive.
    node.change(host_command=("sh", "-c", f'cp "$6" {tmp_path}/imported.tar', "ctr"))
    await node.reconcile()
    assert node.backup().status.message == ""
    assert node.archives() == []
    assert "imported.tar" in file_names(tmp_path)


async def test_archive_is_only_stored_if_no_image_is_wanted(node: CheckpointNode, tmp_path: Path) -> None:
    await node.add_pod()
    await node.add_backup(buildImage=False)
    await node.reconcile()
    status = node.backup().status
    [file] = status.checkpoint_files
    assert status.phase == "Completed"
    assert file.storage_path.startswith(f"{tmp_path}/storage/research/checkpoint-train-0_research-main-")
    assert Path(file.storage_path).read_bytes() == archive("main", owner=("research", "train-0", "main"))  # noqa: ASYNC240
    assert status.built_images == []
    assert node.archives() == []


async def test_pod_is_deleted_after_success_and_the_schedule_ends(node: CheckpointNode) -> None:
    await node.add_pod()
    await node.add_backup(stopPod=True, buildImage=False, schedule="* * * * *")
    assert await node.reconcile() is None
    assert node.backup().status.phase == "CompletedPodDeleted"
    assert node.api.objects("pods") == []
    await node.add_pod()
    assert await node.reconcile() is None
    assert node.kubelet.dumps == ["main"]
    assert len(node.api.objects("pods")) == 1


async def test_pod_that_may_not_be_deleted_is_said_in_the_status(node: CheckpointNode) -> None:
    await node.add_pod()
    await node.add_backup(stopPod=True, buildImage=False)
    node.api.faults.append(Fault(403, match=lambda seen: seen.method == "DELETE", message="no right"))
    await node.reconcile()
    status = node.backup().status
    assert status.phase == "CompletedWithError"
    assert "pod research/train-0 not deleted: no right" in status.message


async def test_cron_makes_a_checkpoint_at_once_and_one_for_all_missed_ticks(node: CheckpointNode) -> None:
    await node.add_pod()
    await node.add_backup(buildImage=False, schedule="@every 1h")
    after = await node.reconcile()
    assert after is not None
    assert 3500 < after <= 3600
    assert node.kubelet.dumps == ["main"]
    late(node, timedelta(hours=5))
    after = await node.reconcile()
    assert node.kubelet.dumps == ["main", "main"]
    assert after is not None
    assert 3500 < after <= 3600


@needs_registry
async def test_images_of_the_last_checkpoint_stay_in_the_status_if_the_next_one_fails(
    node: CheckpointNode, registry: RunningRegistry
) -> None:
    await node.add_pod()
    await node.add_backup(schedule="@every 1h", registry=target(registry))
    await node.reconcile()
    first = node.backup().status
    late(node, timedelta(hours=5))
    node.kubelet.answer = http(404, b"no such container")
    await node.reconcile()
    status = node.backup().status
    assert (status.phase, status.built_images) == ("Failed", [])
    kept = status.last_completed
    assert kept is not None
    assert (kept.built_images, kept.digests) == (first.built_images, first.digests)
    assert kept.built_images[0].pushed


async def test_tick_at_which_the_pod_does_not_run_is_skipped(node: CheckpointNode) -> None:
    await node.add_pod()
    await node.add_backup(buildImage=False, schedule="@hourly")
    await node.reconcile()
    late(node, timedelta(hours=5))
    await node.add_pod(phase="Pending")
    assert await node.reconcile() is not None
    assert node.backup().status.phase == "Completed"
    await node.add_pod()
    await node.reconcile()
    assert node.kubelet.dumps == ["main", "main"]


def late(node: CheckpointNode, by: timedelta) -> None:
    """Make the last checkpoint older."""
    status = node.raw()["status"]
    assert isinstance(status, dict)
    for condition in status["conditions"]:
        at = datetime.fromisoformat(condition["lastTransitionTime"]) - by
        condition["lastTransitionTime"] = at.isoformat().replace("+00:00", "Z")


FAULTS: dict[str, tuple[dict[str, object], dict[str, object], str]] = {
    "pod is not Running": ({"phase": "Pending"}, {}, "pod research/train-0 is not Running"),
    "unknown container": (
        {},
        {"containers": [{"name": "mian", "image": "a/b:1"}]},
        'unknown container "mian"',
    ),
    "bad schedule": ({}, {"schedule": "every day"}, "spec.schedule: invalid value"),
    "cron that cannot be": ({}, {"schedule": "99 * * * *"}, "spec.schedule: invalid value"),
    "cron with seconds": ({}, {"schedule": "* * * * * *"}, "spec.schedule: invalid value"),
    "no pod": ({}, {"podRef": {"name": "other"}}, "pod research/other not found"),
    "pod on no node": ({"node": ""}, {}, "pod research/train-0 is not Running"),
    "pod of another namespace": (
        {},
        {"podRef": {"name": "secret", "namespace": "kube-system"}},
        "spec.podRef.namespace: invalid value 'kube-system': must be 'research'",
    ),
    "secret of another namespace": (
        {},
        {
            "registry": {
                "url": "localhost:1",
                "repository": "a",
                "secretRef": {"name": "s", "namespace": "kube-system"},
            }
        },
        "spec.registry.secretRef.namespace: invalid value 'kube-system'",
    ),
    "invalid image": (
        {},
        {
            "registry": {"url": "localhost:1", "repository": "a"},
            "containers": [{"name": "main", "image": "Upper/case:1"}],
        },
        "the repository must be lower case",
    ),
    "image of another registry": (
        {},
        {
            "registry": {"url": "localhost:1", "repository": "a"},
            "containers": [{"name": "main", "image": "evil.example/a:1"}],
        },
        "must be an image of the registry localhost:1",
    ),
}


@pytest.mark.parametrize("case", FAULTS)
async def test_backup_that_cannot_be_made_fails_with_a_message(case: str, node: CheckpointNode) -> None:
    pod, spec, want = FAULTS[case]
    await node.add_pod("train-0", "main", **pod)
    await node.add_backup("backup", **spec)
    assert await node.reconcile() is None
    status = node.backup().status
    assert (status.phase, status.observed_generation) == ("Failed", 1)
    assert want in status.message
    assert node.kubelet_server.calls == []


async def test_failed_backup_is_made_once_its_spec_is_right(node: CheckpointNode) -> None:
    await node.add_pod()
    await node.add_backup(schedule="never", buildImage=False)
    await node.reconcile()
    raw = node.raw()
    spec = raw["spec"]
    assert isinstance(spec, dict)
    spec["schedule"], meta(raw)["generation"] = "immediately", 2
    await node.reconcile()
    assert (node.backup().status.phase, node.backup().status.observed_generation) == ("Completed", 2)


async def test_pods_of_other_nodes_are_left_to_their_agents(node: CheckpointNode) -> None:
    await node.add_pod(node="node-2")
    await node.add_backup()
    assert await node.reconcile() is None
    assert node.backup().status.phase == ""
    assert "finalizers" not in meta(node.raw())


async def test_trusted_namespace_may_name_pods_of_others(node: CheckpointNode) -> None:
    await node.add_pod()
    await node.add_backup(podRef={"name": "train-0", "namespace": "research"}, buildImage=False)
    raw = node.raw()
    await node.api.remove("checkpointbackups", "research", "backup")
    meta(raw)["namespace"] = "stateful-migration"
    await node.api.put("checkpointbackups", raw)
    async with node.agent() as reconciler:
        await reconciler.reconcile(Key("stateful-migration", "backup"))
    assert node.backup().status.phase == "Completed"


KUBELET: dict[str, tuple[bytes, str]] = {
    "404": (http(404, b"container main not found"), "knows no such container, or makes no checkpoints"),
    "403": (http(403, b"Forbidden"), "requires the permission to create nodes/checkpoint"),
    "500": (http(500, b"criu failed: type DUMP errno 0"), "status 500: criu failed: type DUMP errno 0"),
    "success without an archive": (http(200, b'{"items": ["/etc/shadow"]}'), "there is no archive of it"),
}


@pytest.mark.parametrize("case", KUBELET)
async def test_refusal_of_the_kubelet_is_in_the_message(case: str, node: CheckpointNode) -> None:
    answer, want = KUBELET[case]
    node.kubelet.answer = answer
    await node.add_pod()
    await node.add_backup()
    await node.reconcile()
    status = node.backup().status
    assert status.phase == "Failed"
    assert want in status.message


async def test_archive_is_found_by_its_name_if_the_kubelet_says_nothing_useful(node: CheckpointNode) -> None:
    node.kubelet.says_items = False
    await node.add_pod()
    await node.add_backup(buildImage=False)
    await node.reconcile()
    assert node.backup().status.phase == "Completed"


async def test_busy_kubelet_is_asked_again(node: CheckpointNode) -> None:
    node.kubelet.answer = http(503, b"busy")
    await node.add_pod()
    await node.add_backup(buildImage=False)
    async with node.agent() as reconciler:
        assert await reconciler.reconcile(Key("research", "backup")) is not None
        assert node.backup().status.message == "retrying: the kubelet answered with status 503: busy"
        node.kubelet.answer = None
        await reconciler.reconcile(Key("research", "backup"))
    assert (node.backup().status.phase, node.backup().status.message) == ("Completed", "")


async def test_certificate_of_another_authority_is_not_accepted(node: CheckpointNode) -> None:
    node.connection = msgspec.structs.replace(node.connection, certificate_authority=Authority().certificate)
    await node.add_pod()
    await node.add_backup()
    await node.reconcile()
    assert node.backup().status.phase == "Failed"
    assert "CERTIFICATE_VERIFY_FAILED" in node.backup().status.message
    assert node.kubelet_server.calls == []


@needs_registry
async def test_each_backup_has_its_own_login(node: CheckpointNode, private: RunningRegistry) -> None:
    await node.add_pod()
    await add_secret(node, "wrong", {"username": USERNAME, "password": "guessed"})
    await add_secret(node, "right", {"username": USERNAME, "password": PASSWORD})
    auth = base64.b64encode(f"{USERNAME}:{PASSWORD}".encode()).decode()
    config = json.dumps({"auths": {f"https://{private.address}/v1/": {"auth": auth}}})
    await add_secret(node, "docker", {".dockerconfigjson": config})
    outcomes = {}
    for secret in ("wrong", "right", "docker"):
        await node.add_backup(secret, registry=target(private, secret))
        await node.reconcile(secret)
        outcomes[secret] = node.backup(secret).status.phase
    assert outcomes == {"wrong": "Failed", "right": "Completed", "docker": "Completed"}
    assert "Unauthorized" in node.backup("wrong").status.message
    assert "guessed" not in str(node.raw("wrong"))
    assert [name for name in node.archives() if "train-0" in name], "the archive of a failed backup is kept"


@needs_registry
async def test_registry_with_a_private_ca_is_trusted_by_the_secret_or_the_file(
    node: CheckpointNode, tmp_path: Path
) -> None:
    authority, file = Authority(), tmp_path / "ca.crt"
    certificate = authority.issue("registry", x509.IPAddress(ip_address("0.0.0.0")))
    login = {"username": USERNAME, "password": PASSWORD}
    await node.add_pod()
    await add_secret(node, "login", login)
    await add_secret(node, "with-ca", {**login, "ca.crt": authority.certificate.decode()})
    await add_secret(node, "garbage", {**login, "ca.crt": "?"})
    (tmp_path / "registry").mkdir()
    with running_registry(tmp_path / "registry", login=True, certificate=certificate) as running:
        # Another address of this machine, because loopback is reached by plain HTTP.
        registry = {"url": running.address.replace("127.0.0.1", "0.0.0.0"), "repository": "team/train"}
        default = {**login, "registry": registry["url"], "ca.crt": "?"}
        await add_secret(node, "registry-credentials", default, "stateful-migration")
        outcomes = dict[str, tuple[str, str]]()
        for secret, bundle in (
            ("with-ca", None),
            ("garbage", authority.certificate),
            ("login", None),
            ("login", b"?"),
            ("login", authority.certificate),
            ("", authority.certificate),
        ):
            node.change(registry_authority=file if bundle else None)
            file.write_bytes(bundle or b"")
            name = f"{secret or 'default'}-{len(outcomes)}"
            reference = {"secretRef": {"name": secret}} if secret else {}
            await node.add_backup(name, registry={**registry, **reference})
            await node.reconcile(name)
            status = node.backup(name).status
            outcomes[name] = (status.phase, status.message)
    assert outcomes["with-ca-0"] == outcomes["login-4"] == ("Completed", "")
    problem = "no valid PEM certificate: none found"
    assert outcomes["garbage-1"][1] == f"retrying: secret research/garbage: key 'ca.crt': {problem}"
    where = "secret stateful-migration/registry-credentials"
    assert outcomes["default-5"][1] == f"retrying: {where}: key 'ca.crt': {problem}"
    assert outcomes["login-2"][1].startswith("retrying: Unreachable: ")
    assert "CERTIFICATE_VERIFY_FAILED" in outcomes["login-2"][1]
    assert outcomes["login-3"][1] == f"retrying: Unreachable: --registry-ca {file}: {problem}"


@needs_registry
async def test_default_login_is_only_for_the_registry_that_it_names(
    node: CheckpointNode, private: RunningRegistry
) -> None:
    await node.add_pod()
    login = {"username": USERNAME, "password": PASSWORD}
    await add_secret(node, "registry-credentials", login, "stateful-migration")
    await node.add_backup("unnamed", registry=target(private))
    await node.reconcile("unnamed")
    named = {**login, "registry": private.address}
    await add_secret(node, "registry-credentials", named, "stateful-migration")
    await node.add_backup("named", registry=target(private))
    await node.reconcile("named")
    assert node.backup("unnamed").status.phase == "Failed"
    assert node.backup("named").status.phase == "Completed"
    async with Registry(private.address, Login(**login)) as client:
        assert await client.tags(parse_image(f"{private.address}/team/train").repository)


async def test_path_in_the_status_that_others_have_written_is_not_followed(
    node: CheckpointNode, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    await node.add_pod()
    await node.add_backup(buildImage=False, stopPod=True)
    node.raw()["status"] = {
        "phase": "Checkpointed",
        "nodeName": NODE,
        "checkpointFiles": [{"containerName": "main", "filePath": f"{tmp_path}/secret"}],
    }
    await node.reconcile()
    assert node.backup().status.phase == "Failed"
    assert "is not an archive of container research/train-0/main" in node.backup().status.message
    assert file_names(tmp_path) == {"secret", "checkpoints"}
    assert len(node.api.objects("pods")) == 1


async def test_archive_of_a_container_of_another_namespace_with_the_same_name_is_not_touched(
    node: CheckpointNode,
) -> None:
    """Archives of `main` in `research-a` are called like those of `a-main` in `research`."""
    await node.add_pod("train-0", "a-main")
    earlier = datetime.now(UTC) - timedelta(minutes=1)
    path = node.kubelet.folder / archive_name("research-a", "train-0", "main", earlier)
    path.write_bytes(archive("main", owner=("research-a", "train-0", "main")))
    long_ago = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"phase": "Checkpointing", "nodeName": NODE, "conditions": [long_ago]}
    await node.add_backup("looks", buildImage=False)
    node.raw("looks")["status"] = dict(status)
    await node.reconcile("looks")
    assert node.kubelet.dumps == ["a-main"], "its own container is checkpointed"
    await node.add_backup("names", buildImage=False)
    file = {"containerName": "a-main", "filePath": str(path)}
    node.raw("names")["status"] = {**status, "phase": "Checkpointed", "checkpointFiles": [file]}
    await node.reconcile("names")
    assert "is not an archive of container research/train-0/a-main" in node.backup("names").status.message
    for name in ("looks", "names"):
        raw = node.raw(name)
        meta(raw)["finalizers"] = [BACKUP_FINALIZER]
        meta(raw)["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        await node.reconcile(name)
        assert meta(node.raw(name))["finalizers"] == []
    assert node.archives() == [path.name]


async def test_backup_with_a_path_that_others_have_written_can_be_deleted(
    node: CheckpointNode, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    await node.add_pod()
    await node.add_backup()
    raw = node.raw()
    meta(raw)["finalizers"] = [BACKUP_FINALIZER]
    meta(raw)["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    files = [{"containerName": "main", "filePath": path} for path in (f"{tmp_path}/secret", "", "..")]
    raw["status"] = {"phase": "ImagePushing", "nodeName": NODE, "checkpointFiles": files}
    await node.reconcile()
    assert meta(node.raw())["finalizers"] == []
    assert "secret" in file_names(tmp_path)


async def test_status_with_a_time_beyond_all_calendars_ends_the_backup(node: CheckpointNode) -> None:
    await node.add_pod()
    far = {"type": "Ready", "status": "False", "lastTransitionTime": "9999-12-31T23:59:59Z"}
    await node.add_backup("retries", registry={"url": "127.0.0.1:1", "repository": "a"})
    node.raw("retries")["status"] = {"phase": "Checkpointing", "nodeName": NODE, "conditions": [far]}
    assert await node.reconcile("retries") is not None
    assert node.backup("retries").status.message.startswith("retrying: ")
    await node.add_backup("repeats", schedule="@every 24h")
    node.raw("repeats")["status"] = {"phase": "Completed", "nodeName": NODE, "conditions": [far]}
    assert await node.reconcile("repeats") is None


async def test_no_archive_is_made_on_a_disk_that_is_almost_full(
    node: CheckpointNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")
    full = [usage._replace(total=100, free=9)]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full[0])
    await node.add_pod()
    await node.add_backup(buildImage=False)
    async with node.agent() as reconciler:
        await reconciler.reconcile(Key("research", "backup"))
    message = f"retrying: {node.kubelet.folder}: 9% of the disk is free; must be at least 10%"
    assert (node.backup().status.message, node.archives()) == (message, [])
    full[0] = usage._replace(total=100, free=50)
    await node.reconcile()
    assert node.backup().status.phase == "Completed"


async def test_backup_does_not_say_whether_a_pod_of_another_namespace_exists(node: CheckpointNode) -> None:
    await node.add_pod("train-0", node="")
    messages = set()
    for name in ("train-0", "missing"):
        pod = {"podRef": {"name": name, "namespace": "research"}, "schedule": "immediately"}
        metadata = {"name": name, "namespace": "other", "creationTimestamp": "2026-01-01T00:00:00Z"}
        await node.api.put("checkpointbackups", {"metadata": metadata, "spec": pod})
        async with node.agent() as reconciler:
            await reconciler.reconcile(Key("other", name))
        messages.add(node.backup(name).status.message)
    assert messages == {"spec.podRef.namespace: invalid value 'research': must be 'other'"}


async def test_deleted_backup_takes_its_archives_along(node: CheckpointNode) -> None:
    await node.add_pod()
    await node.add_backup(registry={"url": "127.0.0.1:1", "repository": "a"})
    async with node.agent() as reconciler:
        await reconciler.reconcile(Key("research", "backup"))
    assert len(node.archives()) == 1
    raw = node.raw()
    meta(raw)["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    await node.reconcile()
    assert node.archives() == []
    assert meta(node.raw())["finalizers"] == []


@pytest.mark.parametrize(("other_exists", "want_released"), [(True, False), (False, True)])
async def test_backup_of_another_node_is_released_only_when_that_is_gone(
    node: CheckpointNode, other_exists: bool, want_released: bool
) -> None:
    await node.add_backup()
    raw = node.raw()
    meta(raw)["finalizers"] = [BACKUP_FINALIZER, "other"]
    meta(raw)["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    raw["status"] = {"phase": "ImagePushing", "nodeName": "node-2"}
    if other_exists:
        await node.api.put("nodes", {"metadata": {"name": "node-2"}})
    await node.reconcile()
    assert meta(node.raw())["finalizers"] == (["other"] if want_released else [BACKUP_FINALIZER, "other"])


async def test_backup_in_progress_on_a_node_that_is_gone_fails(node: CheckpointNode) -> None:
    await node.add_backup()
    node.raw()["status"] = {"phase": "Checkpointing", "nodeName": "node-2"}
    await node.api.put("nodes", {"metadata": {"name": "node-2"}})
    assert await node.reconcile() is not None
    assert node.backup().status.phase == "Checkpointing"
    await node.api.remove("nodes", "", "node-2")
    await node.reconcile()
    status = node.backup().status
    assert (status.phase, status.message) == ("Failed", "node node-2 does not exist any more")


async def test_archive_of_another_backup_is_not_taken_for_its_own(node: CheckpointNode) -> None:
    await node.add_pod()
    await node.add_backup("first", registry={"url": "127.0.0.1:1", "repository": "a"})
    await node.add_backup("second", buildImage=False)
    async with node.agent() as reconciler:
        await reconciler.reconcile(Key("research", "first"))
        future = datetime.now(UTC) + timedelta(seconds=1)
        raw = node.raw("first")["status"]
        assert isinstance(raw, dict)
        path = node.kubelet.folder / archive_name("research", "train-0", "main", future)
        Path(raw["checkpointFiles"][0]["filePath"]).rename(path)  # noqa: ASYNC240
        raw["checkpointFiles"][0]["filePath"] = str(path)
    await node.reconcile("second")
    assert node.kubelet.dumps == ["main", "main"]
    assert path.name in node.archives()


async def test_backup_for_a_member_of_karmada_is_left_to_the_agents_there(node: CheckpointNode) -> None:
    await node.add_pod()
    await node.add_backup()
    template = dict(node.raw())
    owner = {"apiVersion": "migration.dcnlab.com/v1", "kind": "StatefulMigration", "name": "move"}
    template["metadata"] = {
        **meta(template),
        "annotations": {"argosy.dev/member-cluster": "far"},
        "ownerReferences": [{**owner, "uid": "m", "controller": True}],
    }
    await node.api.put("checkpointbackups", template)
    assert await node.reconcile() is None
    assert node.kubelet.dumps == []
    assert node.backup().status.phase == ""
