import pytest

from argosy.kinds.template import known_fields, template_errors

Json = dict[str, object]

CONTAINER = "t.spec.containers[0]"


def container(**fields: object) -> Json:
    return {"spec": {"containers": [{"name": "main", "image": "image", **fields}]}}


def spec(**fields: object) -> Json:
    return {"spec": {"containers": [{"name": "main"}], **fields}}


INVALID: dict[str, tuple[Json, str, str]] = {
    "command as a string: must be a list, with a hint": (
        container(command="python train.py"),
        f"{CONTAINER}.command",
        'invalid value "python train.py": must be a list; write ["python train.py"]',
    ),
    "number in args: must be a string, with a hint": (
        container(args=["--rate", 0.1]),
        f"{CONTAINER}.args[1]",
        'invalid value 0.1: must be a string; write "0.1"',
    ),
    "number as value of env: must be a string, with a hint": (
        container(env=[{"name": "A", "value": "1"}, {"name": "B", "value": 1}]),
        f"{CONTAINER}.env[1].value",
        'invalid value 1: must be a string; write "1"',
    ),
    "boolean as value of env: must be a string, with a hint": (
        container(env=[{"name": "B", "value": True}]),
        f"{CONTAINER}.env[0].value",
        'invalid value true: must be a string; write "true"',
    ),
    "env as a map: must be a list": (
        container(env={"A": "1"}),
        f"{CONTAINER}.env",
        'invalid value {"A": "1"}: must be a list',
    ),
    "word as memory limit: must be a quantity": (
        container(resources={"limits": {"memory": "lots"}}),
        f"{CONTAINER}.resources.limits.memory",
        'invalid value "lots": must be a quantity like 2, 500m or 16Gi',
    ),
    "cpu request with a trailing space: must be a quantity": (
        container(resources={"requests": {"cpu": "1 "}}),
        f"{CONTAINER}.resources.requests.cpu",
        'invalid value "1 ": must be a quantity like 2, 500m or 16Gi',
    ),
    "word as limit of an extended resource: path has the key in brackets": (
        container(resources={"limits": {"nvidia.com/gpu": "all"}}),
        f"{CONTAINER}.resources.limits[nvidia.com/gpu]",
        'invalid value "all": must be a quantity like 2, 500m or 16Gi',
    ),
    "limits as a list: must be a map": (
        container(resources={"limits": ["cpu"]}),
        f"{CONTAINER}.resources.limits",
        'invalid value ["cpu"]: must be a map',
    ),
    "string as containerPort: must be an integer": (
        container(ports=[{"containerPort": "http"}]),
        f"{CONTAINER}.ports[0].containerPort",
        'invalid value "http": must be an integer',
    ),
    "containerPort beyond 32 bits: must be a smaller integer": (
        container(ports=[{"containerPort": 1 << 40}]),
        f"{CONTAINER}.ports[0].containerPort",
        "invalid value 1099511627776: must be a smaller integer",
    ),
    "fraction as port of a probe: must be an integer or a string": (
        container(readinessProbe={"tcpSocket": {"port": 1.5}}),
        f"{CONTAINER}.readinessProbe.tcpSocket.port",
        "invalid value 1.5: must be an integer or a string",
    ),
    "number as image: must be a string, with a hint": (
        container(image=3.11),
        f"{CONTAINER}.image",
        'invalid value 3.11: must be a string; write "3.11"',
    ),
    "duration as terminationGracePeriodSeconds: must be an integer": (
        spec(terminationGracePeriodSeconds="5s"),
        "t.spec.terminationGracePeriodSeconds",
        'invalid value "5s": must be an integer',
    ),
    "yes for a boolean: must be true or false": (
        spec(hostNetwork="yes"),
        "t.spec.hostNetwork",
        'invalid value "yes": must be true or false',
    ),
    "string as volume: must be a map": (
        spec(volumes=["data"]),
        "t.spec.volumes[0]",
        'invalid value "data": must be a map',
    ),
    "word as emptyDir.sizeLimit: must be a quantity": (
        spec(volumes=[{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "big"}}]),
        "t.spec.volumes[0].emptyDir.sizeLimit",
        'invalid value "big": must be a quantity like 2, 500m or 16Gi',
    ),
    "command of the second init container as a string: path has its index": (
        spec(initContainers=[{"name": "a", "command": ["true"]}, {"name": "b", "command": "true"}]),
        "t.spec.initContainers[1].command",
        'invalid value "true": must be a list; write ["true"]',
    ),
    "boolean in nodeSelector: must be a string, with a hint": (
        spec(nodeSelector={"gpu": True}),
        "t.spec.nodeSelector.gpu",
        'invalid value true: must be a string; write "true"',
    ),
    "number as label: must be a string, and the path has the key in brackets": (
        {"metadata": {"labels": {"team.example/number": 7}}, **spec()},
        "t.metadata.labels[team.example/number]",
        'invalid value 7: must be a string; write "7"',
    ),
    "metadata as a string: must be a map": (
        {"metadata": "a", **spec()},
        "t.metadata",
        'invalid value "a": must be a map',
    ),
    "value of 500 characters: cut in the message": (
        container(command="x" * 500),
        f"{CONTAINER}.command",
        f'invalid value "{"x" * 59}…: must be a list; write ["{"x" * 59}…]',
    ),
}


@pytest.mark.parametrize(("template", "path", "want"), INVALID.values(), ids=INVALID.keys())
def test_value_of_the_wrong_type_is_an_error_with_its_path(template: Json, path: str, want: str) -> None:
    assert template_errors(template, "t") == [(path, want)]


def test_all_errors_of_a_template_are_returned() -> None:
    errors = template_errors(container(command="a", args="b"), "t")
    assert [path for path, _ in errors] == [f"{CONTAINER}.command", f"{CONTAINER}.args"]


VALID: dict[str, Json] = {
    "quantities in every notation: valid": container(
        resources={"limits": {"cpu": 2, "memory": "1.5Gi", "a": "1e3", "b": 0.5, "c": "100m"}}
    ),
    "probe port by name: valid": container(
        ports=[{"containerPort": 80}], livenessProbe={"httpGet": {"port": "web"}}
    ),
    "values out of range: left to the API server": container(
        ports=[{"containerPort": 70000}], imagePullPolicy="Maybe"
    ),
    "unknown fields: left to the API server": container(someday={"a": [1]}),
    "null values: valid": container(command=None, env=[None], resources={"limits": {"cpu": None}}),
    "null creationTimestamp: valid": {"metadata": {"creationTimestamp": None}, **spec()},
}


@pytest.mark.parametrize("template", VALID.values(), ids=VALID.keys())
def test_valid_template_has_no_errors(template: Json) -> None:
    assert template_errors(template, "t") == []


KNOWN_FIELDS = {
    "mistyped container field: suggestions are container fields": ("spec.containers[0].comand", "command"),
    "mistyped pod spec field: suggestions are pod spec fields": ("spec.hostNetworking", "hostNetwork"),
    "mistyped resources field: suggestions are resources fields": (
        "spec.containers[0].resources.limit",
        "limits",
    ),
}


@pytest.mark.parametrize(("path", "want"), KNOWN_FIELDS.values(), ids=KNOWN_FIELDS.keys())
def test_suggestions_for_a_mistyped_field(path: str, want: str) -> None:
    assert want in known_fields(path)


@pytest.mark.parametrize("path", ["spec.containers[0].resources.limits.cpus", "spec.nope.deeper"])
def test_known_fields_is_empty_for_maps_and_unknown_objects(path: str) -> None:
    assert known_fields(path) == []
