"""Mounts the current folder and the active virtual environment into the containers of a job.

This is for the local control plane, whose pods are processes of this machine that do not see home
directories. The folders are mounted at their own paths; nothing else of the home directory is visible.
"""

import os
from collections.abc import Mapping
from pathlib import Path

Manifest = dict[str, object]

_ALWAYS_VISIBLE = tuple(map(Path, ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/etc")))


def mounted_folders(current: Path, prefix: Path, interpreter: Path) -> list[Path]:
    """Return the folders to mount: the current one, the environment, and the Python that it is based on.

    A folder inside another one is omitted, and so are folders that every pod sees.
    """
    base = interpreter.resolve().parent.parent
    candidates = sorted({current.resolve(), prefix.absolute(), base}, key=lambda path: len(path.parts))
    folders: list[Path] = []
    for path in candidates:
        if not any(path.is_relative_to(parent) for parent in (*folders, *_ALWAYS_VISIBLE)):
            folders.append(path)
    return folders


def mount_working_dir(
    manifest: Manifest, current: Path, prefix: Path, interpreter: Path, environment: Mapping[str, str]
) -> Manifest:
    """Return the job with the current folder and environment mounted in every container of every role."""
    mounts = mounted_folders(current, prefix, interpreter)
    path = os.pathsep.join(
        dict.fromkeys([str(prefix / "bin"), *environment.get("PATH", os.defpath).split(os.pathsep)])
    )
    variables = {"PATH": path, "VIRTUAL_ENV": str(prefix), "PYTHONUNBUFFERED": "1"}
    spec = _child(manifest, "spec")
    roles = {
        name: _mounted_role(_dict(role), mounts, str(current.resolve()), variables)
        for name, role in _child(spec, "roles").items()
    }
    return {**manifest, "spec": {**spec, "roles": roles}}


def with_variables(manifest: Manifest, variables: Mapping[str, str]) -> Manifest:
    """Return the job with these variables in every container; they replace variables of the same name."""
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


def _mounted_role(role: Manifest, mounts: list[Path], current: str, variables: Mapping[str, str]) -> Manifest:
    template = _child(role, "template")
    pod = _child(template, "spec")
    names = {str(path): f"local-{index}" for index, path in enumerate(mounts)}
    volumes = [{"name": name, "hostPath": {"path": path}} for path, name in names.items()]
    volume_mounts = [{"name": name, "mountPath": path} for path, name in names.items()]
    containers = [
        _mounted_container(_dict(container), volume_mounts, current, variables)
        for container in _list(pod, "containers")
    ]
    pod = {**pod, "volumes": [*_list(pod, "volumes"), *volumes], "containers": containers}
    return {**role, "template": {**template, "spec": pod}}


def _mounted_container(
    container: Manifest, mounts: list[dict[str, str]], current: str, variables: Mapping[str, str]
) -> Manifest:
    existing = {_dict(entry).get("name") for entry in _list(container, "env")}
    added = [{"name": name, "value": value} for name, value in variables.items() if name not in existing]
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
