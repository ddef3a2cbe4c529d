"""Tests for the sidecar and the init container of pods whose checkpoints go to an object store."""

from pathlib import Path

import pytest

from argosy.checkpoint import sidecar
from argosy.checkpoint.drivers.credentials import read_credentials
from argosy.checkpoint.drivers.uris import open_store
from argosy.checkpoint.registry_login import DOCKER_CONFIG, Login, docker_config
from argosy.checkpoint.sidecar import main, restore
from argosy.checkpoint.store import Latest, Store, StoreError
from argosy.helper.checkpoint_folder import CheckpointFolder
from tests.support.publishing_pod import Pod
from tests.support.registry import PASSWORD, PROGRAM, USERNAME, running_registry


def test_checkpoint_is_acknowledged_once_it_is_in_the_store(tmp_path: Path) -> None:
    pod = Pod(tmp_path)
    pod.save(5)
    pod.watcher.look()
    assert pod.acknowledged() == [5]
    stored = pod.store.latest()
    assert stored is not None
    _, body = pod.operator.posts[0]
    assert (body["digest"], body["epoch"], body["size"]) == (stored.digest, 8, 3)
    assert isinstance(body["seconds"], float)
    assert body["seconds"] >= 1.0, "saving and sending"


def test_old_checkpoints_are_deleted_in_the_store_and_in_the_pod(tmp_path: Path) -> None:
    pod = Pod(tmp_path)
    for step in range(1, 5):
        pod.save(step)
        pod.watcher.look()
    assert [found.step for found in pod.store.list()] == [4, 3]
    assert [found.step for found in CheckpointFolder(pod.folder).find()] == [4]


def test_last_of_several_pods_acknowledges_the_checkpoint_of_all(tmp_path: Path) -> None:
    pods = [Pod(tmp_path, number) for number in range(2)]
    for number, pod in enumerate(pods):
        pod.save(5, number, 2)
        pod.watcher.look()
        pod.watcher.look()
    assert [pod.acknowledged() for pod in pods] == [[], [5]]
    stored = pods[0].store.latest()
    assert stored is not None
    assert [part.path for part in stored.parts] == ["rank-0.txt", "rank-1.txt"]


def test_checkpoint_that_cannot_be_stored_is_not_acknowledged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = Pod(tmp_path)
    path = pod.save(5)
    (path / "rank-0.txt").write_text("5 9")
    pod.watcher.look()
    pod.watcher.look(is_last=True)
    assert pod.acknowledged() == []
    assert capsys.readouterr().err.count("checkpoint of step 5 not stored: ") == 1


def test_init_container_restores_the_newest_checkpoint_and_copies_the_sdk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ARGOSY_CHECKPOINT_URI", f"file://{tmp_path}/store")
    target = tmp_path / "new/run/resume/checkpoint"
    arguments = ["resume", "--link", str(target), "--sdk", str(tmp_path / "sdk")]
    assert main(arguments) == 0
    assert not target.exists()
    assert capsys.readouterr().out == "argosy: no checkpoint yet\n"
    pod = Pod(tmp_path)
    pod.save(5)
    pod.watcher.look()
    assert main(arguments) == 0
    assert (target / "rank-0.txt").read_text() == "5 0"
    assert (tmp_path / "sdk/argosy_sdk/__init__.py").exists()
    first = target.resolve()
    pod.save(6)
    pod.watcher.look()
    assert main(arguments) == 0, "the init container runs again when the pod's sandbox is lost"
    assert (target / "rank-0.txt").read_text() == "6 0"
    stored = pod.store.latest()
    assert stored is not None
    assert target.resolve().parts[-2:] == (stored.name, "step-6")
    assert not first.exists()


def test_init_container_of_a_copy_restores_the_newest_checkpoint_of_any_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = f"file://{tmp_path}/store"
    monkeypatch.setenv("ARGOSY_CHECKPOINT_URI", f"{uri}/replica-0")
    target = tmp_path / "new/run/resume/checkpoint"
    arguments = ["resume", "--copies", uri, "--link", str(target), "--sdk", str(tmp_path / "sdk")]
    pods = [Pod(tmp_path, copy, open_store(f"{uri}/replica-{copy}")) for copy in (0, 1)]
    for step, pod in zip((5, 6), pods, strict=True):
        pod.save(step, content=str(step).encode(), rank=0)
        pod.watcher.look()
        assert pod.acknowledged() == [step]
    assert main(arguments) == 0
    assert (target / "rank-0.txt").read_text() == "6"
    assert capsys.readouterr().out.endswith("argosy: resuming from step 6\n")
    assert [found.step for pod in pods for found in pod.store.list()] == [5, 6], "each in its own folder"


@pytest.mark.parametrize("optional", [False, True])
def test_only_an_optional_checkpoint_is_gone_without_if_the_store_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], optional: bool
) -> None:
    monkeypatch.setattr(sidecar, "RESTORE_SECONDS", 0.0)
    (tmp_path / "store").write_text("not a folder")
    uri = f"file://{tmp_path}/store"
    monkeypatch.setenv("ARGOSY_CHECKPOINT_URI", f"{uri}/replica-0")
    target = tmp_path / "run/resume/checkpoint"
    arguments = ["resume", "--copies", uri, "--link", str(target), "--sdk", str(tmp_path / "sdk")]
    assert main([*arguments, *(["--optional"] if optional else [])]) == int(not optional)
    out, err = capsys.readouterr()
    assert f"argosy: {uri}/: Not a directory\n" in err
    assert ("no checkpoint yet" in out, target.exists()) == (optional, False)
    assert (tmp_path / "sdk/argosy_sdk/__init__.py").exists()


@pytest.mark.skipif(PROGRAM is None, reason="docker-registry is not installed")
def test_registry_is_used_with_the_mounted_pull_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secret, target = tmp_path / "secret", tmp_path / "run/resume/checkpoint"
    secret.mkdir()
    arguments = ["resume", "--link", str(target), "--sdk", str(tmp_path / "sdk")]
    with running_registry(tmp_path, login=True) as running:
        uri = f"oci://{running.address}/team/runs/default/mnist-12345678"
        monkeypatch.setenv("ARGOSY_CHECKPOINT_URI", uri)
        monkeypatch.setenv("ARGOSY_STORE_CREDENTIALS", str(secret))
        (secret / DOCKER_CONFIG).write_bytes(docker_config(Login("me", "wrong"), "other.example"))
        assert main(arguments) == 1
        problem = f"argosy: credentials: it has no login for the registry {running.address}\n"
        assert capsys.readouterr().err == problem
        (secret / DOCKER_CONFIG).write_bytes(docker_config(Login(USERNAME, PASSWORD), running.address))
        pod = Pod(tmp_path, store=open_store(uri, read_credentials(secret)))
        pod.save(5)
        pod.watcher.look()
        assert pod.acknowledged() == [5]
        assert main(arguments) == 0
    assert (target / "rank-0.txt").read_text() == "5 0"


class FailingStore:
    """Fails so many times, and then has no checkpoint."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def restore_latest(self, target: Path) -> Latest:
        if self.failures:
            self.failures -= 1
            raise StoreError("s3://bucket: access denied")
        return Latest(None)


def test_store_that_fails_is_tried_again_for_some_time(tmp_path: Path) -> None:
    waits: list[float] = []
    passing: Store = FailingStore(3)  # type: ignore[assignment]  # what restore needs of one
    assert restore(passing, tmp_path, waits.append).manifest is None
    assert waits == [1.0, 2.0, 4.0]
    failing: Store = FailingStore(1000)  # type: ignore[assignment]
    with pytest.raises(StoreError):
        restore(failing, tmp_path, waits.append)
    assert sum(waits) <= sidecar.RESTORE_SECONDS + sidecar.MAX_RETRY_SECONDS + 7
