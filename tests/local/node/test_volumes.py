from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from argosy.kinds.meta import Json
from argosy.local.node.environment import MissingError, Sources
from argosy.local.node.pod_types import HostPath, Pod, VolumeMount
from argosy.local.node.volumes import (
    VolumeError,
    prepare_host_path,
    prepare_mount_source,
    render_files,
    write_files,
)


def sources() -> Sources:
    return Sources(
        config_map={"settings": {"color": b"blue", "size": b"9"}}.get,
        secret={"keys": {"token": b"s3cret"}}.get,
        services=(),
        node_name="node-1",
        host_ip="",
        pod_ip="",
        node_allocatable={"cpu": Decimal(1)},
    )


def pod(volume: Json) -> Pod:
    return msgspec.convert(
        {
            "metadata": {"name": "p", "namespace": "ns", "labels": {"a": "1"}},
            "spec": {"containers": [{"name": "c"}], "volumes": [{"name": "v", **volume}]},
        },
        Pod,
    )


CASES: dict[str, tuple[Json, dict[str, tuple[bytes, int]]]] = {
    "ConfigMap: a file for each key": (
        {"configMap": {"name": "settings"}},
        {"color": (b"blue", 0o644), "size": (b"9", 0o644)},
    ),
    "items: only these keys at their paths": (
        {"configMap": {"name": "settings", "items": [{"key": "color", "path": "deep/c", "mode": 0o400}]}},
        {"deep/c": (b"blue", 0o400)},
    ),
    "Secret with defaultMode: files have the mode": (
        {"secret": {"secretName": "keys", "defaultMode": 0o400}},
        {"token": (b"s3cret", 0o400)},
    ),
    "optional source missing: empty folder": (
        {"configMap": {"name": "none", "optional": True}},
        {},
    ),
    "downwardAPI: files with fields of the pod": (
        {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        {"labels": (b'a="1"', 0o644)},
    ),
    "projected: files of all sources": (
        {
            "projected": {
                "sources": [
                    {"configMap": {"name": "settings", "items": [{"key": "size", "path": "s"}]}},
                    {"secret": {"name": "keys"}},
                    {"serviceAccountToken": {"path": "tok"}},
                ]
            }
        },
        {"s": (b"9", 0o644), "token": (b"s3cret", 0o644), "tok": (b"jwt", 0o644)},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_files_of_volumes(case: str) -> None:
    volume, want = CASES[case]
    manifest = pod(volume)
    assert render_files(manifest, manifest.spec.volumes[0], sources(), {"tok": "jwt"}) == want


def test_a_missing_source_is_an_error_that_names_it() -> None:
    manifest = pod({"secret": {"secretName": "none"}})
    with pytest.raises(MissingError, match='secret "none" not found'):
        render_files(manifest, manifest.spec.volumes[0], sources(), {})


def test_all_files_are_replaced_atomically(tmp_path: Path) -> None:
    folder = tmp_path / "v"
    assert write_files(folder, {"a": (b"1", 0o644), "deep/b": (b"2", 0o600)}, "one")
    before = (folder / "..data").readlink()
    assert (folder / "a").read_bytes() == b"1"
    assert (folder / "deep" / "b").read_bytes() == b"2"
    assert not write_files(folder, {"a": (b"1", 0o644), "deep/b": (b"2", 0o600)}, "two")
    assert write_files(folder, {"c": (b"3", 0o644)}, "three")
    assert (folder / "..data").readlink() != before
    assert {path.name for path in folder.iterdir()} == {"..data", "..three", "c"}


PATHS_OUT = {
    "path to the parent folder: rejected": "../x",
    "path that leaves the volume later: rejected": "a/../../x",
    "absolute path: rejected": "/etc/x",
    "path into the volume's internal folders: rejected": "..data/x",
    "empty path: rejected": ".",
}


@pytest.mark.parametrize("case", PATHS_OUT)
def test_no_file_is_written_if_a_path_leaves_the_volume(case: str, tmp_path: Path) -> None:
    folder = tmp_path / "pod" / "v"
    with pytest.raises(VolumeError, match="must be relative"):
        write_files(folder, {"good": (b"1", 0o644), PATHS_OUT[case]: (b"2", 0o644)}, "one")
    assert list(tmp_path.rglob("*")) == []


def test_a_link_in_a_volume_creates_no_folder_outside(tmp_path: Path) -> None:
    volume, outside = tmp_path / "volume", tmp_path / "outside"
    for folder in (volume, outside):
        folder.mkdir()
    (volume / "link").symlink_to(outside)
    with pytest.raises(VolumeError, match="leads out of the volume"):
        prepare_mount_source(VolumeMount(name="v", mount_path="/x", sub_path="link/made"), volume, {})
    assert list(outside.iterdir()) == []


def test_a_sub_path_is_created_and_must_stay_in_the_volume(tmp_path: Path) -> None:
    mount = VolumeMount(name="v", mount_path="/x", sub_path_expr="$(NAME)/logs")
    assert prepare_mount_source(mount, tmp_path, {"NAME": "p"}) == str(tmp_path / "p" / "logs")
    (tmp_path / "out").symlink_to("/etc")
    for bad in ("../x", "/etc", "out"):
        with pytest.raises(VolumeError):
            prepare_mount_source(VolumeMount(name="v", mount_path="/x", sub_path=bad), tmp_path, {})


def test_host_paths_are_checked_by_type(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert prepare_host_path(HostPath(str(tmp_path / "new" / "dir"), "DirectoryOrCreate")).is_dir()
    assert prepare_host_path(HostPath(str(tmp_path / "file"), "File")).is_file()
    with pytest.raises(VolumeError, match="is not a directory"):
        prepare_host_path(HostPath(str(tmp_path / "file"), "Directory"))
    with pytest.raises(VolumeError, match="No such file"):
        prepare_host_path(HostPath(str(tmp_path / "none"), ""))
