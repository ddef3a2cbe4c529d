"""Every option of every framework, with every kind of wrong value: where it stands and what is possible."""

from typing import Annotated, Literal

import pytest
from msgspec import Meta, Struct
from msgspec.structs import fields

from argosy.frameworks.options import option_problems
from argosy.frameworks.registry import find_framework, installed

Options = dict[str, object]

WRONG: dict[str, tuple[str, Options, str]] = {
    "processes in words": (
        "pytorch",
        {"procsPerNode": "two"},
        'spec.options.procsPerNode: invalid value "two": must be an integer from 1 to 1024',
    ),
    "no processes": (
        "pytorch",
        {"procsPerNode": 0},
        "spec.options.procsPerNode: invalid value 0: must be an integer from 1 to 1024",
    ),
    "half a process": (
        "pytorch",
        {"procsPerNode": 1.5},
        "spec.options.procsPerNode: invalid value 1.5: must be an integer from 1 to 1024",
    ),
    "a port beyond all ports": (
        "pytorch",
        {"port": 65536},
        "spec.options.port: invalid value 65536: must be an integer from 1 to 65535",
    ),
    "a port that is nothing": (
        "pytorch",
        {"port": None},
        "spec.options.port: invalid value null: must be an integer from 1 to 65535",
    ),
    "fewer than no restarts": (
        "pytorch",
        {"maxRestarts": -1},
        "spec.options.maxRestarts: invalid value -1: must be an integer from 0 to 10000",
    ),
    "an implementation that is none": (
        "mpi",
        {"implementation": "lam"},
        'spec.options.implementation: invalid value "lam": must be ompi, mpich or intel',
    ),
    "an implementation that is a list": (
        "mpi",
        {"implementation": ["ompi"]},
        'spec.options.implementation: invalid value ["ompi"]: must be ompi, mpich or intel',
    ),
    "slots that are true": (
        "mpi",
        {"slotsPerWorker": True},
        "spec.options.slotsPerWorker: invalid value true: must be an integer from 1 to 1024",
    ),
    "yes instead of true": (
        "mpi",
        {"launcherAsHost": "yes"},
        'spec.options.launcherAsHost: invalid value "yes": must be true or false',
    ),
    "a typing error": (
        "pytorch",
        {"procPerNode": 2},
        "spec.options.procPerNode: unknown option: did you mean procsPerNode? framework pytorch has"
        " maxRestarts, port and procsPerNode",
    ),
    "a key instead of whether there are any": (
        "mpi",
        {"sshKeys": "id_ed25519"},
        'spec.options.sshKeys: invalid value "id_ed25519": must be true or false',
    ),
    "words of another language": (
        "mpi",
        {"speed": "high"},
        "spec.options.speed: unknown option: framework mpi has implementation, launcherAsHost,"
        " slotsPerWorker and sshKeys",
    ),
    "an option where there are none": (
        "custom",
        {"port": 1},
        "spec.options.port: unknown option: framework custom has no options",
    ),
    "no port for JAX": (
        "jax",
        {"port": 0},
        "spec.options.port: invalid value 0: must be an integer from 1 to 65535",
    ),
    "ports of Dask that are none": (
        "dask",
        {"port": -1, "masterPort": "any", "threadsPerWorker": 0},
        "spec.options.port: invalid value -1: must be an integer from 1 to 65535; "
        'spec.options.masterPort: invalid value "any": must be an integer from 1 to 65535; '
        "spec.options.threadsPerWorker: invalid value 0: must be an integer from 1 to 1024",
    ),
    "wrong ones of TensorFlow": (
        "tensorflow",
        {"port": 70000, "dynamicWorkers": "on"},
        "spec.options.port: invalid value 70000: must be an integer from 1 to 65535; "
        'spec.options.dynamicWorkers: invalid value "on": must be true or false',
    ),
    "no port for XGBoost": (
        "xgboost",
        {"port": []},
        "spec.options.port: invalid value []: must be an integer from 1 to 65535",
    ),
    "wrong ones of Horovod": (
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
    "wrong ports of Bagua": (
        "bagua",
        {"availablePorts": [0]},
        "spec.options.availablePorts: invalid value [0]: must be a list in which each item is an integer"
        " from 1 to 65535",
    ),
    "wrong ones of DeepSpeed": (
        "deepspeed",
        {"procsPerNode": -1, "port": "ssh", "implementation": "pdsh"},
        "spec.options.procsPerNode: invalid value -1: must be an integer from 1 to 1024; "
        'spec.options.port: invalid value "ssh": must be an integer from 1 to 65535; '
        'spec.options.implementation: invalid value "pdsh": must be ompi, mpich or intel',
    ),
    "an option for pods that are left alone": (
        "standalone",
        {"port": 1},
        "spec.options.port: unknown option: framework standalone has no options",
    ),
    "two at once": (
        "pytorch",
        {"port": 0, "maxRestart": 3},
        "spec.options.port: invalid value 0: must be an integer from 1 to 65535; "
        "spec.options.maxRestart: unknown option: did you mean maxRestarts? framework pytorch has"
        " maxRestarts, port and procsPerNode",
    ),
    "a value without end": (
        "mpi",
        {"implementation": "x" * 5000},
        f'spec.options.implementation: invalid value "{"x" * 59}…: must be ompi, mpich or intel',
    ),
}


def told(framework: str, options: Options) -> str:
    found = find_framework(framework)
    assert found is not None
    return "; ".join(map(str, option_problems(framework, options, found.Options, "spec.options")))


@pytest.mark.parametrize(("framework", "options", "want"), WRONG.values(), ids=WRONG.keys())
def test_wrong(framework: str, options: Options, want: str) -> None:
    assert told(framework, options) == want


def test_every_option_of_every_framework_is_in_the_table() -> None:
    every = {
        (name, field.encode_name)
        for name, framework in installed().items()
        for field in fields(framework.Options)
    }
    assert every - {(name, option) for name, options, _ in WRONG.values() for option in options} == set()


@pytest.mark.parametrize("name", installed())
def test_every_option_says_what_is_possible(name: str) -> None:
    for field in fields(installed()[name].Options):
        said = told(name, {field.encode_name: {"no": "such"}})
        assert said.startswith(f'spec.options.{field.encode_name}: invalid value {{"no": "such"}}: must be ')
        assert "of another form" not in said


RIGHT: dict[str, tuple[str, Options]] = {
    "none": ("pytorch", {}),
    "all of pytorch": ("pytorch", {"procsPerNode": 1024, "port": 1, "maxRestarts": 0}),
    "an option unset": ("pytorch", {"procsPerNode": None}),
    "all of mpi": ("mpi", {"implementation": "intel", "slotsPerWorker": 1, "launcherAsHost": True}),
}


@pytest.mark.parametrize(("framework", "options"), RIGHT.values(), ids=RIGHT.keys())
def test_right(framework: str, options: Options) -> None:
    assert told(framework, options) == ""


class Store(Struct, forbid_unknown_fields=True):
    url: Annotated[str, Meta(pattern="^s3:")]
    parts: list[int] = []


class Foreign(Struct, rename="camel", forbid_unknown_fields=True):
    """Options as an adapter from elsewhere may have them."""

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
    "deep inside": ({"store": {"url": "file:"}}, 'o.store.url: invalid value "file:": must be text that'),
    "missing deep inside": ({"store": {}}, "o.store.url: required: must be text that matches ^s3:"),
    "unknown deep inside": ({"store": {"url": "s3:", "part": []}}, "o.store.part: unknown option: "),
    "text for a map": ({"store": "s3:"}, 'o.store: invalid value "s3:": must be a map with url and parts'),
    "a list of other things": (
        {"store": {"url": "s3:", "parts": ["a"]}},
        'o.store.parts: invalid value ["a"]: must be a list in which each item is an integer',
    ),
    "a bound that is not reached": ({"rate": 0}, "o.rate: invalid value 0: must be a number above 0"),
    "a word that is none": ({"level": "mid"}, 'o.level: invalid value "mid": must be high or low'),
    "a map of other things": (
        {"hosts": {"a": "b"}},
        'o.hosts: invalid value {"a": "b"}: must be a map in which each value is an integer',
    ),
    "a rule about two of them": ({"least": 2}, "o: least is more than most"),
}


@pytest.mark.parametrize(("options", "want"), FOREIGN.values(), ids=FOREIGN.keys())
def test_options_of_an_adapter_from_elsewhere(options: Options, want: str) -> None:
    (found,) = option_problems("foreign", options, Foreign, "o")
    assert str(found).startswith(want)
