"""Tests for image archives that containerd can import."""

import hashlib
import json
import sys
import tarfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from tests.support.cluster import images
from tests.support.cluster.images import Layer, LayerWriter


def test_digests_of_an_archive_match_its_files(tmp_path: Path) -> None:
    archive = tmp_path / "image.tar"
    layer = _layer(tmp_path / "layer.tar")
    images.write_archive(archive, ("here/a:1", "here/b:1"), (layer,), config={"Cmd": ["/x"]})
    content = _content(archive)
    index = json.loads(content["index.json"])
    assert [manifest["annotations"]["io.containerd.image.name"] for manifest in index["manifests"]] == [
        "here/a:1",
        "here/b:1",
    ]
    for name, blob in content.items():
        if name.startswith("blobs/"):
            assert name == f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}"
    manifest = json.loads(content[_blob(index["manifests"][0]["digest"])])
    image = json.loads(content[_blob(manifest["config"]["digest"])])
    assert image["config"] == {"Cmd": ["/x"]}
    assert image["rootfs"]["diff_ids"] == [layer["digest"] for layer in manifest["layers"]]
    assert _blob(manifest["layers"][0]["digest"]) in content


def test_archive_may_omit_layers_that_a_node_has(tmp_path: Path) -> None:
    base, own = _layer(tmp_path / "base.tar", b"base"), _layer(tmp_path / "own.tar", b"own")
    images.write_archive(tmp_path / "image.tar", ("a:1",), (base, own), carried=(own,), config={})
    content = _content(tmp_path / "image.tar")
    assert _blob(own.digest) in content
    assert _blob(base.digest) not in content


def test_archive_is_reproducible(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    for name in ("b", "a"):
        (tmp_path / "tree" / name).write_text(name)
    digests = set()
    for attempt in ("one", "two"):
        writer = LayerWriter(tmp_path / f"{attempt}.tar")
        writer.tree(tmp_path / "tree", "/opt/tree")
        digests.add(writer.done().digest)
        (tmp_path / "tree" / "a").touch()
    assert len(digests) == 1


def test_files_of_a_layer_are_readable_by_everyone(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.touch(mode=0o700)
    (tmp_path / "tree").mkdir(mode=0o700)
    (tmp_path / "tree" / "file").touch(mode=0o600)
    (tmp_path / "tree" / "left-out").touch()
    (tmp_path / "tree" / "link").symlink_to("file")
    writer = LayerWriter(tmp_path / "layer.tar")
    writer.copy(program, "/usr/bin/program")
    writer.copy(program, "/usr/bin/program")
    writer.tree(tmp_path / "tree", "/tree", without=frozenset(["left-out"]))
    with tarfile.open(writer.done().path) as layer:
        modes = {member.name: member.mode for member in layer}
        assert layer.getmember("tree/link").linkname == "file"
    assert modes == {
        "usr": 0o755,
        "usr/bin": 0o755,
        "usr/bin/program": 0o755,
        "tree": 0o755,
        "tree/file": 0o644,
        "tree/link": 0o777,
    }


def test_modules_of_a_layer_have_bytecode_that_python_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", None)
    writer = LayerWriter(tmp_path / "layer.tar")
    writer.content("/package/module.py", b"value = 1\n")
    writer.content("/package/template.py", b"{% not Python %}\n")
    with tarfile.open(writer.done().path) as layer:
        layer.extractall(tmp_path, filter="data")
    folder = tmp_path / "package"
    assert [path.name.split(".")[0] for path in folder.glob("__pycache__/*")] == ["module"]
    (folder / "module.py").write_text("value = 2\n")
    spec = spec_from_file_location("module", folder / "module.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.value == 1


def _layer(path: Path, content: bytes = b"content") -> Layer:
    writer = LayerWriter(path)
    writer.content("/file", content)
    return writer.done()


def _content(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        content = {}
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            content[member.name] = file.read()
        return content


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"
