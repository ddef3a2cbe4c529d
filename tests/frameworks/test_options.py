"""Tests for invalid option values of every framework: errors have the path and the allowed values."""

from typing import Annotated, Literal

import pytest
from msgspec import Meta, Struct
from msgspec.structs import fields

from argosy.frameworks.options import option_problems
from argosy.frameworks.registry import find_framework, installed

Options = dict[str, object]

WRONG: dict[str, tuple[str, Options, str]] = {
    "text for an integer: rejected": (
        "pytorch",
        {"procsPerNode": "two"},
        'spec.options.procsPerNode: invalid value "two": must be an integer from 1 to 1024',
    ),
    "integer below its minimum: rejected": (
        "pytorch",
        {"procsPerNode": 0},
        "spec.options.procsPerNode: invalid value 0: must be an integer from 1 to 1024",
    ),
    "fraction for an integer: rejected": (
        "pytorch",
        {"procsPerNode": 1.5},
        "spec.options.procsPerNode: invalid value 1.5: must be an integer from 1 to 1024",
    ),
    "port above 65535: rejected": (
        "pytorch",
        {"port": 65536},
        "spec.options.port: invalid value 65536: must be an integer from 1 to 65535",
    ),
    "null for a port: rejected": (
        "pytorch",
        {"port": None},
        "spec.options.port: invalid value null: must be an integer from 1 to 65535",
    ),
    "negative number of restarts: rejected": (
        "pytorch",
        {"maxRestarts": -1},
        "spec.options.maxRestarts: invalid value -1: must be an integer from 0 to 10000",
    ),
    "unknown implementation: rejected": (
        "mpi",
        {"implementation": "lam"},
        'spec.options.implementation: invalid value "lam": must be ompi, mpich or intel',
    ),
    "list for an implementation: rejected": (
        "mpi",
        {"implementation": ["ompi"]},
        'spec.options.implementation: invalid value ["ompi"]: must be ompi, mpich or intel',
    ),
    "boolean for an integer: rejected": (
        "mpi",
        {"slotsPerWorker": True},
        "spec.options.slotsPerWorker: invalid value true: must be an integer from 1 to 1024",
    ),
    "text for a boolean: rejected": (
        "mpi",
        {"launcherAsHost": "yes"},
        'spec.options.launcherAsHost: invalid value "yes": must be true or false',
    ),
    "misspelled option: nearest one suggested": (
        "pytorch",
        {"procPerNode": 2},
        "spec.options.procPerNode: unknown option: did you mean procsPerNode? framework pytorch has"
        " maxRestarts, port and procsPerNode",
    ),
    "text for sshKeys: rejected": (
        "mpi",
        {"sshKeys": "id_ed25519"},
        'spec.options.sshKeys: invalid value "id_ed25519": must be true or false',
    ),
    "option of another framework: known options listed": (
        "mpi",
        {"speed": "high"},
        "spec.options.speed: unknown option: framework mpi has implementation, launcherAsHost,"
        " slotsPerWorker and sshKeys",
    ),
    "option of a framework without options: rejected": (
        "custom",
        {"port": 1},
        "spec.options.port: unknown option: framework custom has no options",
    ),
    "invalid port of JAX: rejected": (
        "jax",
        {"port": 0},
        "spec.options.port: invalid value 0: must be an integer from 1 to 65535",
    ),
    "invalid options of Dask: rejected": (
        "dask",
        {"port": -1, "masterPort": "any", "threadsPerWorker": 0},
        "spec.options.port: invalid value -1: must be an integer from 1 to 65535; "
        'spec.options.masterPort: invalid value "any": must be an integer from 1 to 65535; '
        "spec.options.threadsPerWorker: invalid value 0: must be an integer from 1 to 1024",
    ),
    "invalid options of TensorFlow: rejected": (
        "tensorflow",
        {"port": 70000, "dynamicWorkers": "on"},
        "spec.options.port: invalid value 70000: must be an integer from 1 to 65535; "
        'spec.options.dynamicWorkers: invalid value "on": must be true or false',
    ),
    "invalid port of XGBoost: rejected": (
        "xgboost",
        {"port": []},
        "spec.options.port: invalid value []: must be an integer from 1 to 65535",
    ),
    "invalid options of Horovod: rejected": (
        "horovod",
        {
            "controller": "nccl",
            "implementation": 1,
            "slotsPerWorker": 0,
            "launcherAsHost": None,
            "sshKeys": 1,
        },
        'spec.options.controller: invalid value "nccl": must be gloo or mpi; '
        "spec.options.implementation: invalid value 1: must be ompi, mpich or intel; "
        "spec.options.slotsPerWorker: invalid value 0: must be an integer from 1 to 1024; "
        "spec.options.launcherAsHost: invalid value null: must be true or false; "
        "spec.options.sshKeys: invalid value 1: must be true or false",
    ),
    "invalid ports of Bagua: rejected": (
        "bagua",
        {"availablePorts": [0]},
        "spec.options.availablePorts: invalid value [0]: must be a list in which each item is an integer"
        " from 1 to 65535",
    ),
    "invalid options of DeepSpeed: rejected": (
        "deepspeed",
        {"procsPerNode": -1, "port": "ssh", "implementation": "pdsh"},
        "spec.options.procsPerNode: invalid value -1: must be an integer from 1 to 1024; "
        'spec.options.port: invalid value "ssh": must be an integer from 1 to 65535; '
        'spec.options.implementation: invalid value "pdsh": must be ompi, mpich or intel',
    ),
    "option of standalone: rejected": (
        "standalone",
        {"port": 1},
        "spec.options.port: unknown option: framework standalone has no options",
    ),
    "two invalid options: both reported": (
        "pytorch",
        {"port": 0, "maxRestart": 3},
        "spec.options.port: invalid value 0: must be an integer from 1 to 65535; "
        "spec.options.maxRestart: unknown option: did you mean maxRestarts? framework pytorch has"
        " maxRestarts, port and procsPerNode",
    ),
    "very long value: truncated in the message": (
        "mpi",
        {"implementation": "x" * 5000},
        f'spec.options.implementation: invalid value "{"x" * 59}…: must be ompi, mpich or intel',
    ),
}


def problem_text(framework: str, options: Options) -> str:
    adapter = find_framework(framework)
    assert adapter is not None
    return "; ".join(map(str, option_problems(framework, options, adapter.Options, "spec.options")))


@pytest.mark.parametrize(("framework", "options", "want"), WRONG.values(), ids=WRONG.keys())
def test_invalid_options(framework: str, options: Options, want: str) -> None:
    assert problem_text(framework, options) == want


def test_the_table_covers_every_option_of_every_framework() -> None:
    every = {
        (name, field.encode_name)
        for name, framework in installed().items()
        for field in fields(framework.Options)
    }
    assert every - {(name, option) for name, options, _ in WRONG.values() for option in options} == set()


@pytest.mark.parametrize("name", installed())
def test_allowed_values_of_every_option_are_described(name: str) -> None:
    for field in fields(installed()[name].Options):
        message = problem_text(name, {field.encode_name: {"no": "such"}})
        assert message.startswith(
            f'spec.options.{field.encode_name}: invalid value {{"no": "such"}}: must be '
        )
        assert "of another form" not in message


RIGHT: dict[str, tuple[str, Options]] = {
    "no options: accepted": ("pytorch", {}),
    "all options of pytorch: accepted": ("pytorch", {"procsPerNode": 1024, "port": 1, "maxRestarts": 0}),
    "optional option set to null: accepted": ("pytorch", {"procsPerNode": None}),
    "all options of mpi: accepted": (
        "mpi",
        {"implementation": "intel", "slotsPerWorker": 1, "launcherAsHost": True},
    ),
}


@pytest.mark.parametrize(("framework", "options"), RIGHT.values(), ids=RIGHT.keys())
def test_valid_options(framework: str, options: Options) -> None:
    assert problem_text(framework, options) == ""


class Store(Struct, forbid_unknown_fields=True):
    url: Annotated[str, Meta(pattern="^s3:")]
    parts: list[int] = []


class Foreign(Struct, rename="camel", forbid_unknown_fields=True):
    """Options of an adapter of another package."""

    store: Store | None = None
    rate: Annotated[float, Meta(gt=0)] = 1.0
    level: Literal["low", "high"] = "low"
    hosts: dict[str, int] = {}
    least: int = 0
    most: int = 0

    def __post_init__(self) -> None:
        if self.least > self.most:
            raise ValueError("least is more than most")


FOREIGN: dict[str, tuple[Options, str]] = {
    "invalid nested option: rejected with its path": (
        {"store": {"url": "file:"}},
        'o.store.url: invalid value "file:": must be text that',
    ),
    "missing nested option: rejected with its path": (
        {"store": {}},
        "o.store.url: required: must be text that matches ^s3:",
    ),
    "unknown nested option: rejected with its path": (
        {"store": {"url": "s3:", "part": []}},
        "o.store.part: unknown option: ",
    ),
    "text for a map: rejected": (
        {"store": "s3:"},
        'o.store: invalid value "s3:": must be a map with url and parts',
    ),
    "list with items of another type: rejected": (
        {"store": {"url": "s3:", "parts": ["a"]}},
        'o.store.parts: invalid value ["a"]: must be a list in which each item is an integer',
    ),
    "number at an exclusive bound: rejected": (
        {"rate": 0},
        "o.rate: invalid value 0: must be a number above 0",
    ),
    "unknown literal: rejected": ({"level": "mid"}, 'o.level: invalid value "mid": must be high or low'),
    "map with values of another type: rejected": (
        {"hosts": {"a": "b"}},
        'o.hosts: invalid value {"a": "b"}: must be a map in which each value is an integer',
    ),
    "check of several options: its message reported": ({"least": 2}, "o: least is more than most"),
}


@pytest.mark.parametrize(("options", "want"), FOREIGN.values(), ids=FOREIGN.keys())
def test_invalid_options_of_an_adapter_of_another_package(options: Options, want: str) -> None:
    (problem,) = option_problems("foreign", options, Foreign, "o")
    assert str(problem).startswith(want)
