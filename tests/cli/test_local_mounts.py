"""What a run's containers see of the place where the user stands."""

from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from msgspec import Struct

from argosy.cli.local_mounts import Manifest, mount_working_dir, mounted_folders, with_variables
from argosy.kinds.trainingrun import TrainingRun


class Case(NamedTuple):
    current: str
    prefix: str
    base: str
    want: list[str]


CASES = {
    "the folder, the environment and the Python behind it are mounted": Case(
        "home/u/work",
        "home/u/env",
        "home/u/pythons/3.11",
        ["home/u/env", "home/u/pythons/3.11", "home/u/work"],
    ),
    "an environment inside the folder needs no mount of its own": Case(
        "home/u/work", "home/u/work/.venv", "home/u/work/.venv", ["home/u/work"]
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_folders(case: Case, tmp_path: Path) -> None:
    interpreter = tmp_path / case.base / "bin" / "python"
    interpreter.parent.mkdir(parents=True)
    interpreter.touch()
    (tmp_path / case.current).mkdir(parents=True, exist_ok=True)
    found = mounted_folders(tmp_path / case.current, tmp_path / case.prefix, interpreter)
    assert sorted(str(path.relative_to(tmp_path)) for path in found) == sorted(case.want)


def test_what_every_pod_sees_anyway_is_not_mounted(tmp_path: Path) -> None:
    assert mounted_folders(tmp_path, Path("/usr"), Path("/usr/bin/env")) == [tmp_path.resolve()]


def test_every_container_stands_in_the_current_folder_and_keeps_its_own_variables(tmp_path: Path) -> None:
    container = {"name": "main", "env": [{"name": "PATH", "value": "/mine"}]}
    run = _run(container)
    seen = mount_working_dir(run, tmp_path, Path("/usr"), Path("/usr/bin/env"), {"PATH": "/bin"})
    pod = _pod(seen)
    [first] = pod.containers
    assert first.working_dir == str(tmp_path.resolve())
    assert {"name": "PATH", "value": "/mine"} in first.env
    assert [mount["mountPath"] for mount in first.volume_mounts] == [str(tmp_path.resolve())]
    assert [volume.host_path["path"] for volume in pod.volumes] == [str(tmp_path.resolve())]
    assert container == {"name": "main", "env": [{"name": "PATH", "value": "/mine"}]}, (
        "the original is not changed"
    )


def test_variables_of_the_command_line_win() -> None:
    container = {"name": "main", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}
    run = _run(container)
    [first] = _pod(with_variables(run, {"A": "3"})).containers
    assert first.env == [{"name": "B", "value": "2"}, {"name": "A", "value": "3"}]


def _run(container: object) -> Manifest:
    roles = {"worker": {"template": {"spec": {"containers": [container]}}}}
    return {"kind": "TrainingRun", "metadata": {}, "spec": {"framework": "custom", "roles": roles}}


class _Container(Struct, rename="camel"):
    name: str
    working_dir: str = ""
    env: list[dict[str, str]] = []
    volume_mounts: list[dict[str, str]] = []


class _Volume(Struct, rename="camel"):
    host_path: dict[str, str]


class _Pod(Struct):
    containers: list[_Container]
    volumes: list[_Volume] = []


def _pod(run: Manifest) -> _Pod:
    return msgspec.convert(msgspec.convert(run, TrainingRun).spec.roles["worker"].template["spec"], _Pod)
