"""Which folders and variables `--mount-cwd` and `--env` add to the containers of a job."""

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
    "environment and Python outside the current folder: all three are mounted": Case(
        "home/u/work",
        "home/u/env",
        "home/u/pythons/3.11",
        ["home/u/env", "home/u/pythons/3.11", "home/u/work"],
    ),
    "environment inside the current folder: only the folder is mounted": Case(
        "home/u/work", "home/u/work/.venv", "home/u/work/.venv", ["home/u/work"]
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_folders(case: Case, tmp_path: Path) -> None:
    interpreter = tmp_path / case.base / "bin" / "python"
    interpreter.parent.mkdir(parents=True)
    interpreter.touch()
    (tmp_path / case.current).mkdir(parents=True, exist_ok=True)
    folders = mounted_folders(tmp_path / case.current, tmp_path / case.prefix, interpreter)
    assert sorted(str(path.relative_to(tmp_path)) for path in folders) == sorted(case.want)


def test_folders_that_every_pod_sees_are_not_mounted(tmp_path: Path) -> None:
    assert mounted_folders(tmp_path, Path("/usr"), Path("/usr/bin/env")) == [tmp_path.resolve()]


def test_containers_run_in_the_current_folder_and_keep_their_variables(tmp_path: Path) -> None:
    container = {"name": "main", "env": [{"name": "PATH", "value": "/mine"}]}
    run = _run(container)
    mounted = mount_working_dir(run, tmp_path, Path("/usr"), Path("/usr/bin/env"), {"PATH": "/bin"})
    pod = _pod(mounted)
    [first] = pod.containers
    assert first.working_dir == str(tmp_path.resolve())
    assert {"name": "PATH", "value": "/mine"} in first.env
    assert [mount["mountPath"] for mount in first.volume_mounts] == [str(tmp_path.resolve())]
    assert [volume.host_path["path"] for volume in pod.volumes] == [str(tmp_path.resolve())]
    assert container == {"name": "main", "env": [{"name": "PATH", "value": "/mine"}]}, (
        "the original is unchanged"
    )


def test_variables_of_the_command_line_replace_those_of_the_container() -> None:
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
