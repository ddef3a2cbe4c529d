"""Tests for building the programs of a real Kubernetes; a script takes the place of Go."""

import os
import platform
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import builds, commands
from tests.support.assets import MissingAsset, Programs, minors
from tests.support.waiting import eventually

GO = """\
#!/bin/sh
echo go >> "$CALLS"
while [ "$1" != -o ]; do shift; done
echo half > "$2"
if [ -n "$HANG" ]; then echo > "$HANG"; sleep 60; fi
echo whole > "$2"
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own and a Go that only notes that it was called."""
    (tmp_path / "bin").mkdir()
    for name in ("go", "gcc", "nft"):
        (tmp_path / "bin" / name).write_text(GO)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.delenv("HANG", raising=False)
    return tmp_path / "calls"


def test_built_program_is_not_built_again(calls: Path) -> None:
    printed: list[str] = []
    builds.build(Programs(), printed.append, reference_only=True)
    assert {path.read_text() for path in _programs()} == {"whole\n"}
    assert [path.name for path in _programs()] == ["etcd", "kube-apiserver"]
    before = calls.read_text()
    builds.build(Programs(), printed.append, reference_only=True)
    assert calls.read_text() == before


def test_s3_server_is_built_without_the_others(calls: Path) -> None:
    builds.build_s3_server(Programs(), lambda _: None)
    assert [path.name for path in _programs()] == [builds.S3_SERVER]


def test_program_is_built_again_if_its_sources_changed(calls: Path) -> None:
    builds.build(Programs(), lambda _: None, reference_only=True)
    (Programs().cache / "etcd.pins").write_text("other sources")
    builds.build(Programs(), lambda _: None, reference_only=True)
    assert len(calls.read_text().splitlines()) == 3


def test_failed_build_leaves_no_program_and_is_reported(calls: Path, tmp_path: Path) -> None:
    (tmp_path / "bin" / "go").write_text(GO.replace("echo whole", "exit 3; echo"))
    with pytest.raises(MissingAsset, match="etcd could not be built: go ended with 3"):
        builds.build(Programs(), lambda _: None, reference_only=True)
    assert list(Programs().cache.iterdir()) == []


async def test_killed_build_leaves_no_incomplete_program(calls: Path, tmp_path: Path) -> None:
    imports = "from tests.support import builds, assets"
    code = f"{imports}; builds.build(assets.Programs(), print, reference_only=True)"
    hanging = commands.module_environment(HANG=str(tmp_path / "hangs"))
    with subprocess.Popen(  # noqa: ASYNC220 - it is killed by its group
        [sys.executable, "-c", code], env=hanging, start_new_session=True, stdout=subprocess.DEVNULL
    ) as building:
        await eventually((tmp_path / "hangs").exists, 60)
        os.killpg(building.pid, signal.SIGKILL)
    assert _programs() == []
    builds.build(Programs(), lambda _: None, reference_only=True)
    assert {path.read_text() for path in _programs()} == {"whole\n"}
    assert not (Programs().cache / ".building").exists()


def test_missing_tools_are_reported_before_any_build(
    calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin" / "gcc").unlink()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(MissingAsset, match="apt install gcc"):
        builds.build(Programs(), lambda _: None)
    assert not calls.exists()


APT = """\
#!/bin/sh
echo apt-get "$@" >> "$CALLS"
for word; do
  case $word in
    Dir::State::lists=*) updated=yes ;;
    Dir::Cache::archives=*) archives=${word#*=} ;;
  esac
done
[ -n "$updated" ] || exit 100
touch "$archives/nftables.deb"
"""
DPKG = """\
#!/bin/sh
mkdir -p "$3/usr/sbin"
echo '#!/bin/sh' > "$3/usr/sbin/nft"
echo 'echo "$LD_LIBRARY_PATH" "$@"' >> "$3/usr/sbin/nft"
chmod +x "$3/usr/sbin/nft"
"""


def test_missing_nft_is_unpacked_from_its_debian_package(
    calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin" / "nft").unlink()
    for name, script in (("apt-get", APT), ("dpkg", DPKG)):
        (tmp_path / "bin" / name).write_text(script)
        (tmp_path / "bin" / name).chmod(0o755)
    for name in ("mkdir", "touch", "chmod", "sh", "nice", "sleep"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or "")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(builds, "_ADMINISTRATION", ())
    monkeypatch.setattr(builds, "recipes", lambda _: [])
    monkeypatch.setattr(builds, "tools", list)
    builds.build(Programs(), lambda _: None)
    nft = Programs().cache / "nft"
    output = subprocess.run([str(nft), "list"], capture_output=True, text=True, check=True).stdout
    assert (
        output == f"{Programs().cache.parent}/debian/nftables/usr/lib/{platform.machine()}-linux-gnu list\n"
    )
    before = calls.read_text()
    assert "update" in before, "old package lists are not fetched again into our own folder"
    builds.build(Programs(), lambda _: None)
    assert calls.read_text() == before


def test_missing_nft_without_debian_names_the_package(
    calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin" / "nft").unlink()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(builds, "_ADMINISTRATION", ())
    monkeypatch.setattr(builds, "recipes", lambda _: [])
    monkeypatch.setattr(builds, "tools", list)
    with pytest.raises(MissingAsset, match=r"kube-proxy needs .* nftables"):
        builds.build(Programs(), lambda _: None)


@pytest.mark.parametrize("minor", minors())
def test_every_program_has_a_pinned_version(minor: str) -> None:
    for recipe in (*builds.recipes(Programs(minor)), *builds.tools()):
        pins = (recipe.folder / "go.mod").read_text()
        if recipe.package == ".":
            assert (recipe.folder / "main.go").exists()
        else:
            assert f"\t{recipe.package}\n" in pins or f"tool {recipe.package}\n" in pins


def test_versions_have_separate_folders() -> None:
    first, second = (Programs(minor) for minor in minors()[:2])
    assert first.version.startswith(f"{first.minor}.")
    assert first.cache != second.cache
    with pytest.raises(MissingAsset, match=first.minor):
        _ = Programs("1.2").version


def _programs() -> list[Path]:
    return sorted(path for path in Programs().cache.iterdir() if path.is_file() and path.suffix != ".pins")
