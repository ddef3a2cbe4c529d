"""Lets the containers of a run see the folder and the virtual environment that the user stands in.

For the local control plane, where pods are processes of this machine with home directories hidden: the
folders that the command needs are mounted at their own paths, and nothing else is.
"""

import os
from collections.abc import Mapping
from pathlib import Path

Manifest = dict[str, object]

_ALWAYS_VISIBLE = tuple(map(Path, ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/etc")))


def mounted_folders(current: Path, prefix: Path, interpreter: Path) -> list[Path]:
    """What must be mounted: the current folder, the environment, and the Python that it was made from.

    A folder inside another one of the list is left out, and so is what every pod sees anyway.
    """
    base = interpreter.resolve().parent.parent
    wanted = sorted({current.resolve(), prefix.absolute(), base}, key=lambda path: len(path.parts))
    kept: list[Path] = []
    for path in wanted:
        if not any(path.is_relative_to(seen) for seen in (*kept, *_ALWAYS_VISIBLE)):
            kept.append(path)
    return kept


def mount_working_dir(
    manifest: Manifest, current: Path, prefix: Path, interpreter: Path, environment: Mapping[str, str]
) -> Manifest:
    """The same run, with every container of every role in the current folder and environment."""
    mounts = mounted_folders(current, prefix, interpreter)
    path = os.pathsep.join(
        dict.fromkeys([str(prefix / "bin"), *environment.get("PATH", os.defpath).split(os.pathsep)])
    )
    variables = {"PATH": path, "VIRTUAL_ENV": str(prefix), "PYTHONUNBUFFERED": "1"}
    spec = _child(manifest, "spec")
    roles = _child(spec, "roles")
    seen = {
        name: _role(_dict(role), mounts, str(current.resolve()), variables) for name, role in roles.items()
    }
    return {**manifest, "spec": {**spec, "roles": seen}}


def with_variables(manifest: Manifest, variables: Mapping[str, str]) -> Manifest:
    """The same run, with these variables in every container, in place of ones of the same name."""
    spec = _child(manifest, "spec")
    roles = {}
    for name, value in _child(spec, "roles").items():
        role = _dict(value)
        template = _child(role, "template")
        pod = _child(template, "spec")
        containers = [
            {**_dict(container), "env": _with_env(_list(_dict(container), "env"), variables)}
            for container in _list(pod, "containers")
        ]
        roles[name] = {**role, "template": {**template, "spec": {**pod, "containers": containers}}}
    return {**manifest, "spec": {**spec, "roles": roles}}


def _with_env(entries: list[object], variables: Mapping[str, str]) -> list[object]:
    kept = [entry for entry in entries if _dict(entry).get("name") not in variables]
    return [*kept, *({"name": name, "value": value} for name, value in variables.items())]


def _role(role: Manifest, mounts: list[Path], current: str, variables: Mapping[str, str]) -> Manifest:
    template = _child(role, "template")
    pod = _child(template, "spec")
    names = {str(path): f"here-{index}" for index, path in enumerate(mounts)}
    volumes = [{"name": name, "hostPath": {"path": path}} for path, name in names.items()]
    here = [{"name": name, "mountPath": path} for path, name in names.items()]
    containers = [
        _container(_dict(container), here, current, variables) for container in _list(pod, "containers")
    ]
    pod = {**pod, "volumes": [*_list(pod, "volumes"), *volumes], "containers": containers}
    return {**role, "template": {**template, "spec": pod}}


def _container(
    container: Manifest, mounts: list[dict[str, str]], current: str, variables: Mapping[str, str]
) -> Manifest:
    own = {_dict(entry).get("name") for entry in _list(container, "env")}
    added = [{"name": name, "value": value} for name, value in variables.items() if name not in own]
    return {
        "workingDir": current,
        **container,
        "env": [*_list(container, "env"), *added],
        "volumeMounts": [*_list(container, "volumeMounts"), *mounts],
    }


def _child(parent: Manifest, key: str) -> Manifest:
    return _dict(parent.get(key) or {})


def _list(parent: Manifest, key: str) -> list[object]:
    value = parent.get(key) or []
    return value if isinstance(value, list) else []


def _dict(value: object) -> Manifest:
    return value if isinstance(value, dict) else {}
