"""Random job definitions for property tests, generated from the schema of each API or by corrupting samples.

`ARES_SPECS` and `RUN_SPECS` are mostly invalid: in types, values, names or sizes, or only for the API server
that validates the pods. `VALID_ARES_SPECS` and `VALID_RUN_SPECS` are for tests of running jobs.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from argosy.dialects.ares.profiles import PROFILES
from argosy.frameworks.registry import installed
from argosy.kinds.aresjob import AresJobSpec
from argosy.kinds.crd import schema_of
from argosy.kinds.trainingrun import TrainingRunSpec
from tests.support.commands import REPOSITORY
from tests.support.examples import WANTED
from tests.support.strategies import Strategy, corrupted, from_schema

Spec = dict[str, object]

_COMMON = settings(deadline=None, suppress_health_check=list(HealthCheck), report_multiple_bugs=False)
EXAMPLE_COUNTS: Final = pytest.mark.parametrize(
    "example_settings",
    [
        settings(_COMMON, max_examples=40, derandomize=True),
        pytest.param(
            settings(_COMMON, max_examples=10_000), marks=[pytest.mark.long, pytest.mark.timeout(1800)]
        ),
    ],
    ids=["few examples", "many examples"],
)
"""Parametrizes a test with `example_settings`, which it applies to its property."""

_ROLES = ("worker", "master", "launcher", "chief", "ps", "scheduler", "etcd")
_SPANS = (
    *(
        "activeDeadline",
        "startTimeout",
        "belowMinTimeout",
        "forceDeleteAfter",
        "ttlAfterSucceeded",
        "ttlAfterFailed",
    ),
    "timeout",
)
_NAMES = st.sampled_from([*_ROLES, "Bad_Name", "", "x" * 64])


def _templates(containers: Sequence[str]) -> Strategy:
    right = st.sampled_from(containers).map(lambda name: {"name": name, "image": "image"})
    main = {"name": "main", "image": "image"}
    odd: list[object] = [
        {},
        {"spec": {}},
        {"spec": None},
        {"spec": "x"},
        {"spec": {"containers": [None, 3]}},
        {"spec": {"containers": [{**main, "command": "true"}]}},
        {"spec": {"containers": [{**main, "ports": [{"containerPort": 70000}]}]}},
        {"spec": {"containers": [{**main, "imagePullPolicy": "Sometimes"}]}},
        {"spec": {"containers": [{**main, "resources": {"limits": {"cpu": "lots"}}}]}},
        {"spec": {"containers": [{**main, "volumeMounts": [{"name": "gone", "mountPath": "/x"}]}]}},
        {"spec": {"containers": [main, main]}},
        {"spec": {"containers": [main], "initContainers": [{**main, "name": "initializer"}]}},
        {"spec": {"containers": [main], "volumes": [{"name": "configurations", "emptyDir": {}}] * 2}},
        {"metadata": {"labels": {"argosy.dev/index": "7", "a b": "c"}}, "spec": {"containers": [main]}},
        {"metadata": {"ownerReferences": [{"uid": "u"}], "name": "x"}, "spec": {"containers": [main]}},
    ]
    spec = st.fixed_dictionaries({"containers": st.lists(right, max_size=2)})
    return st.one_of(st.fixed_dictionaries({"spec": spec}), st.sampled_from(odd))


def _read(*paths: Path) -> list[Spec]:
    return [yaml.safe_load(path.read_text())["spec"] for path in paths]


ARES_SPECS: Final = st.one_of(
    from_schema(
        schema_of(AresJobSpec),
        {
            "*": _NAMES,
            "template": _templates([*PROFILES, "main"]),
            "frameworkType": st.sampled_from([*PROFILES, "pytroch", ""]),
            "replicas": st.sampled_from([1, 2, 3, 0, -1, 2**31 - 1]),
            "restartPolicy": st.sampled_from(["Never", "OnFailure", "Always", "ExitCode", "", "x"]),
            "roleNames": st.lists(st.sampled_from([*_ROLES, "nobody"]), max_size=2),
        },
    ),
    corrupted(_read(*sorted((REPOSITORY / "deploy/ares/config/samples").glob("*.yaml")))),
)
RUN_SPECS: Final = st.one_of(
    from_schema(
        schema_of(TrainingRunSpec),
        {
            "*": _NAMES,
            "template": _templates(["main"]),
            "framework": st.sampled_from([*installed(), "pytroch"]),
            "replicas": st.sampled_from([1, 2, 3]),
            "role": st.sampled_from([*_ROLES, "nobody"]),
            **dict.fromkeys(_SPANS, st.sampled_from(["0s", "90s", "1h30m", "9" * 31 + "d"])),
        },
    ),
    corrupted(_read(*(REPOSITORY / example for example in WANTED))),
)


_QUORUMS = st.sampled_from(["AnyPod", "AllPods"])
_ENDLESS = st.sampled_from([0, 60, 2**63 - 1])
_TEMPLATE = st.just({"spec": {"containers": [{"name": "main", "image": "image"}]}})
_RESTARTS = st.sampled_from(["Never", "OnFailure", "Always", "ExitCode"])


def _some(**parts: Strategy) -> Strategy:
    """An object with any of these fields."""
    return st.fixed_dictionaries({}, optional=parts).map(lambda generated: generated)


def _two_roles(role: Strategy) -> Strategy:
    names = st.sampled_from(["worker", "master"])
    return st.dictionaries(names, role, min_size=1).map(lambda generated: generated)


_POLICY = _some(failed=_QUORUMS, succeeded=_QUORUMS, nodeDownAsFailed=st.booleans())
_ARES_ROLE = st.fixed_dictionaries(
    {"template": _TEMPLATE},
    optional={
        "replicas": st.integers(1, 3),
        "restartPolicy": _RESTARTS,
        "rolePhasePolicy": _POLICY,
        "elastic": st.sampled_from([{"min": 1, "max": 3}, {"min": 1, "max": 4, "multipleOf": 1}]),
    },
)
VALID_ARES_SPECS: Final = st.fixed_dictionaries(
    {"frameworkType": st.just("custom"), "roleSpecs": _two_roles(_ARES_ROLE.map(dict))},
    optional={
        "ttlSecondsAfterFailed": _ENDLESS,
        "runPolicy": _some(
            cleanPodPolicy=st.sampled_from(["All", "Running", "None", ""]),
            ttlSecondsAfterFinished=_ENDLESS,
            activeDeadlineSeconds=_ENDLESS,
            backoffLimit=st.sampled_from([0, 2]),
            schedulingPolicy=st.just({"minAvailable": 1}),
            suspend=st.booleans(),
            restartScope=st.sampled_from(["Pod", "Job"]),
        ),
        "checkpoint": st.sampled_from([{"store": "s3://a"}, {"store": "pvc://a", "onDrain": "Save"}]),
    },
)
"""Invalid only if a role with restartPolicy Always is in a job with restartScope Job, or an elastic one is in
such a job or has restartPolicy Never."""
_RUN_ROLE = st.fixed_dictionaries(
    {"template": _TEMPLATE},
    optional={
        "replicas": st.integers(1, 3),
        "restart": _RESTARTS,
        "policy": _POLICY,
        "elastic": st.just({"min": 1, "max": 3}),
    },
)
VALID_RUN_SPECS: Final = st.fixed_dictionaries(
    {"framework": st.just("custom"), "roles": _two_roles(_RUN_ROLE.map(dict))},
    optional={
        "limits": _some(
            restarts=st.sampled_from([0, 2]),
            **dict.fromkeys(_SPANS[:-1], st.sampled_from(["1m", "9" * 31 + "d"])),
        ),
        "gang": _some(timeout=st.sampled_from(["1m", "9" * 31 + "d"])),
        "cleanup": st.sampled_from(["All", "Running", "None"]),
        "suspend": st.booleans(),
        "restartScope": st.sampled_from(["Pod", "Role", "Job"]),
    },
)


def sample(specs: Strategy, number: int) -> list[Spec]:
    """A fixed list of this many specs."""
    drawn: list[Spec] = []

    @settings(_COMMON, max_examples=number, derandomize=True, database=None, phases=[Phase.generate])
    @given(specs)
    def draw(spec: Spec) -> None:
        drawn.append(spec)

    draw()
    return drawn
