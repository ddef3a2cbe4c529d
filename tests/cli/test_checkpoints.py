"""`argosy checkpoints` as users call it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from argosy.checkpoint.drivers.uris import open_store
from argosy.checkpoint.manifest import Manifest
from argosy.cli.checkpoints import checkpoints
from tests.support.checkpoints import contents, make_checkpoint


def call(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(checkpoints, arguments)
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return f"file://{tmp_path}/store"


@pytest.fixture
def manifests(tmp_path: Path, uri: str) -> list[Manifest]:
    """Checkpoints of three steps in the store, the oldest first."""
    made = [make_checkpoint(tmp_path / "work", step, {"a": b"%d" % step * 3000}) for step in (5, 6, 7)]
    for folder, manifest in made:
        open_store(uri).publish(folder, manifest)
    return [manifest for _, manifest in made]


def damage(tmp_path: Path, manifest: Manifest) -> None:
    (tmp_path / "store" / "checkpoints" / manifest.name / "manifest.json").write_text("{}")


def test_list(uri: str, manifests: list[Manifest]) -> None:
    lines = call("list", uri).stdout.splitlines()
    assert lines[0].split() == ["NAME", "STEP", "CREATED", "RANKS", "SIZE", "EPOCH"]
    assert [line.split()[:2] for line in lines[1:]] == [
        [manifest.name, str(manifest.step)] for manifest in reversed(manifests)
    ]
    listed = json.loads(call("list", uri, "-o", "json").stdout)
    assert [(row["step"], row["digest"], row["size"]) for row in listed] == [
        (manifest.step, manifest.digest, 3000) for manifest in reversed(manifests)
    ]


def test_list_of_an_empty_store(uri: str) -> None:
    result = call("list", uri)
    assert (result.stdout, result.stderr) == ("", f"no checkpoints in {uri}\n")


def test_list_tells_what_cannot_be_used(tmp_path: Path, uri: str, manifests: list[Manifest]) -> None:
    damage(tmp_path, manifests[2])
    result = call("list", uri, code=1)
    assert manifests[2].name not in result.stdout
    assert f"{manifests[2].name}: Object missing required field" in result.stderr
    listed = json.loads(call("list", uri, "-o", "json", code=1).stdout)
    assert [row["name"] for row in listed if row.get("problems")] == [manifests[2].name]


@pytest.mark.parametrize("which", ["", "6", "name", "digest"])
def test_show(uri: str, manifests: list[Manifest], which: str) -> None:
    wanted = manifests[1] if which else manifests[2]
    name = {"name": wanted.name, "digest": wanted.digest}.get(which, which)
    lines = call("show", uri, *([name] if name else [])).stdout.splitlines()
    assert ["Digest:", wanted.digest] in [line.split() for line in lines]
    assert lines[-1].split() == ["a", "0", "2.9", "KiB", wanted.parts[0].sha256[:12]]
    shown = json.loads(call("show", uri, *([name] if name else []), "-o", "json").stdout)
    assert shown["parts"][0]["sha256"] == wanted.parts[0].sha256


def test_show_without_checkpoints_and_of_an_unknown_one(uri: str, manifests: list[Manifest]) -> None:
    assert 'no checkpoint "9" (checkpoints: step-7-' in call("show", uri, "9", code=1).output
    assert "has no checkpoint that can be used" in call("show", f"{uri}/other", code=1).output


def test_verify(tmp_path: Path, uri: str, manifests: list[Manifest]) -> None:
    assert call("verify", uri).stdout.splitlines() == [f"{m.name}: ok" for m in reversed(manifests)]
    for path in (tmp_path / "store" / "chunks").rglob("*"):
        if path.is_file():
            path.write_bytes(b"damaged")
    assert f"{manifests[0].name}: a: chunk " in call("verify", uri, "5", code=1).stdout
    rows = json.loads(call("verify", uri, "-o", "json", code=1).stdout)
    assert [bool(row["problems"]) for row in rows] == [True] * 3


def test_prune(uri: str, manifests: list[Manifest]) -> None:
    result = call("prune", uri, "--keep-last", "1", "--keep", "5")
    assert (result.stdout, result.stderr) == (f"deleted {manifests[1].name}\n", "1 checkpoint deleted\n")
    assert open_store(uri).list() == [manifests[2], manifests[0]]
    assert "Missing option '--keep-last'" in call("prune", uri, code=2).output


def test_copy_between_stores_and_folders(tmp_path: Path, uri: str, manifests: list[Manifest]) -> None:
    other = f"file://{tmp_path}/other"
    assert call("copy", uri, other, "6").stdout == f"{manifests[1].name} copied to {other}\n"
    assert open_store(other).list() == [manifests[1]]
    assert open_store(other).verify(manifests[1]) == []
    call("copy", other, str(tmp_path / "folder"))
    assert contents(tmp_path / "folder" / "step-6") == {"a": b"6" * 3000}
    call("copy", str(tmp_path / "folder"), f"file://{tmp_path}/third")
    assert open_store(f"file://{tmp_path}/third").list() == [manifests[1]]


ERRORS = {
    "an unknown scheme": (("list", "ftp://host/a"), "unknown scheme; must begin with one of file://"),
    "a folder that does not exist": (("copy", "/nowhere", "file:///tmp/x"), "/nowhere: is not a folder"),
    "an unknown command": (("lst", "file:///tmp/x"), "did you mean"),
}


@pytest.mark.parametrize(("arguments", "problem"), ERRORS.values(), ids=ERRORS)
def test_errors_are_one_line(arguments: tuple[str, ...], problem: str) -> None:
    result = CliRunner().invoke(checkpoints, arguments)
    assert result.exit_code in (1, 2)
    assert problem in result.output
    assert "Traceback" not in result.output


def test_credentials_are_read_from_a_file_or_a_folder(tmp_path: Path) -> None:
    (tmp_path / "claim").mkdir()
    (tmp_path / "file").write_text(f'# of the volume\nexport ARGOSY_PVC_ROOT="{tmp_path}"\n')
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "ARGOSY_PVC_ROOT").write_text(f"{tmp_path}\n")
    for name in ("file", "secret"):
        assert "no checkpoints" in call("list", "pvc://claim/a", "--credentials", str(tmp_path / name)).stderr
    (tmp_path / "file").write_text("not a variable")
    wrong = call("list", "pvc://claim/a", "--credentials", str(tmp_path / "file"), code=1).output
    assert "line 1: must be NAME=value" in wrong
    assert "not a variable" not in wrong
