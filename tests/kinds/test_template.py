import subprocess
import sys
from pathlib import Path

import pytest

from argosy.kinds.template import known_fields, template_errors

Json = dict[str, object]

REPOSITORY = Path(__file__).parents[2]
CONTAINER = "t.spec.containers[0]"


def container(**fields: object) -> Json:
    return {"spec": {"containers": [{"name": "main", "image": "image", **fields}]}}


def spec(**fields: object) -> Json:
    return {"spec": {"containers": [{"name": "main"}], **fields}}


WRONG: dict[str, tuple[Json, str, str]] = {
    "a command that is text": (
        container(command="python train.py"),
        f"{CONTAINER}.command",
        'invalid value "python train.py": must be a list; write ["python train.py"]',
    ),
    "an argument that is a number": (
        container(args=["--rate", 0.1]),
        f"{CONTAINER}.args[1]",
        'invalid value 0.1: must be text; write "0.1"',
    ),
    "a variable that is a number": (
        container(env=[{"name": "A", "value": "1"}, {"name": "B", "value": 1}]),
        f"{CONTAINER}.env[1].value",
        'invalid value 1: must be text; write "1"',
    ),
    "a variable that is true": (
        container(env=[{"name": "B", "value": True}]),
        f"{CONTAINER}.env[0].value",
        'invalid value true: must be text; write "true"',
    ),
    "variables as a map": (
        container(env={"A": "1"}),
        f"{CONTAINER}.env",
        'invalid value {"A": "1"}: must be a list',
    ),
    "a limit in words": (
        container(resources={"limits": {"memory": "lots"}}),
        f"{CONTAINER}.resources.limits.memory",
        'invalid value "lots": must be a number with or without a unit, like 2, 500m or 16Gi',
    ),
    "a limit with a space": (
        container(resources={"requests": {"cpu": "1 "}}),
        f"{CONTAINER}.resources.requests.cpu",
        'invalid value "1 ": must be a number with or without a unit, like 2, 500m or 16Gi',
    ),
    "a limit of an extended resource": (
        container(resources={"limits": {"nvidia.com/gpu": "all"}}),
        f"{CONTAINER}.resources.limits[nvidia.com/gpu]",
        'invalid value "all": must be a number with or without a unit, like 2, 500m or 16Gi',
    ),
    "limits as a list": (
        container(resources={"limits": ["cpu"]}),
        f"{CONTAINER}.resources.limits",
        'invalid value ["cpu"]: must be a map',
    ),
    "a port in words": (
        container(ports=[{"containerPort": "http"}]),
        f"{CONTAINER}.ports[0].containerPort",
        'invalid value "http": must be an integer',
    ),
    "a port beyond all numbers": (
        container(ports=[{"containerPort": 1 << 40}]),
        f"{CONTAINER}.ports[0].containerPort",
        "invalid value 1099511627776: must be a smaller integer",
    ),
    "a port of a probe that is half": (
        container(readinessProbe={"tcpSocket": {"port": 1.5}}),
        f"{CONTAINER}.readinessProbe.tcpSocket.port",
        "invalid value 1.5: must be an integer or text",
    ),
    "an image that is a number": (
        container(image=3.11),
        f"{CONTAINER}.image",
        'invalid value 3.11: must be text; write "3.11"',
    ),
    "a grace period in words": (
        spec(terminationGracePeriodSeconds="5s"),
        "t.spec.terminationGracePeriodSeconds",
        'invalid value "5s": must be an integer',
    ),
    "yes instead of true": (
        spec(hostNetwork="yes"),
        "t.spec.hostNetwork",
        'invalid value "yes": must be true or false',
    ),
    "a volume that is text": (
        spec(volumes=["data"]),
        "t.spec.volumes[0]",
        'invalid value "data": must be a map',
    ),
    "a size of memory as a volume": (
        spec(volumes=[{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "big"}}]),
        "t.spec.volumes[0].emptyDir.sizeLimit",
        'invalid value "big": must be a number with or without a unit, like 2, 500m or 16Gi',
    ),
    "an init container's command": (
        spec(initContainers=[{"name": "a", "command": ["true"]}, {"name": "b", "command": "true"}]),
        "t.spec.initContainers[1].command",
        'invalid value "true": must be a list; write ["true"]',
    ),
    "a selector of nodes that is true": (
        spec(nodeSelector={"gpu": True}),
        "t.spec.nodeSelector.gpu",
        'invalid value true: must be text; write "true"',
    ),
    "a label that is a number": (
        {"metadata": {"labels": {"team.example/number": 7}}, **spec()},
        "t.metadata.labels[team.example/number]",
        'invalid value 7: must be text; write "7"',
    ),
    "metadata as text": ({"metadata": "a", **spec()}, "t.metadata", 'invalid value "a": must be a map'),
    "a value without end": (
        container(command="x" * 500),
        f"{CONTAINER}.command",
        f'invalid value "{"x" * 59}…: must be a list; write ["{"x" * 59}…]',
    ),
}


@pytest.mark.parametrize(("template", "path", "want"), WRONG.values(), ids=WRONG.keys())
def test_wrong(template: Json, path: str, want: str) -> None:
    assert template_errors(template, "t") == [(path, want)]


def test_every_misfit_is_told() -> None:
    found = template_errors(container(command="a", args="b"), "t")
    assert [path for path, _ in found] == [f"{CONTAINER}.command", f"{CONTAINER}.args"]


RIGHT: dict[str, Json] = {
    "quantities of all forms": container(
        resources={"limits": {"cpu": 2, "memory": "1.5Gi", "a": "1e3", "b": 0.5, "c": "100m"}}
    ),
    "a port by name": container(ports=[{"containerPort": 80}], livenessProbe={"httpGet": {"port": "web"}}),
    "what only the server can judge": container(ports=[{"containerPort": 70000}], imagePullPolicy="Maybe"),
    "fields that a later Kubernetes may have": container(someday={"a": [1]}),
    "nothing": container(command=None, env=[None], resources={"limits": {"cpu": None}}),
    "a time, as tools write it": {"metadata": {"creationTimestamp": None}, **spec()},
}


@pytest.mark.parametrize("template", RIGHT.values(), ids=RIGHT.keys())
def test_right(template: Json) -> None:
    assert template_errors(template, "t") == []


def test_the_table_is_what_its_script_writes(tmp_path: Path) -> None:
    fresh = tmp_path / "template.json"
    subprocess.run([sys.executable, REPOSITORY / "scripts" / "generate-template", fresh], check=True)
    assert fresh.read_text() == (REPOSITORY / "src/argosy/kinds/template.json").read_text()


KNOWN_FIELDS = {
    "beside a field of a container": ("spec.containers[0].comand", "command"),
    "beside a field of the pod": ("spec.hostNetworking", "hostNetwork"),
    "beside a field inside a map of fields": ("spec.containers[0].resources.limit", "limits"),
}


@pytest.mark.parametrize(("path", "want"), KNOWN_FIELDS.values(), ids=KNOWN_FIELDS.keys())
def test_known_fields_at_a_path(path: str, want: str) -> None:
    assert want in known_fields(path)


@pytest.mark.parametrize("path", ["spec.containers[0].resources.limits.cpus", "spec.nope.deeper"])
def test_no_fields_are_known_where_keys_are_free_or_the_place_is_unknown(path: str) -> None:
    assert known_fields(path) == []
