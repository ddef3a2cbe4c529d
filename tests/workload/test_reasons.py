"""Tests that every reason a user may read is defined in a reasons module and documented."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

import argosy
from argosy.capacity import pool_reasons
from argosy.capacity import reasons as machine_reasons
from argosy.checkpoint import reasons as backup_reasons
from argosy.dialects.ares import reasons as ares_reasons
from argosy.dialects.migration import reasons as migration_reasons
from argosy.dialects.spot import reasons as spot_reasons
from argosy.plan.actions import ActionResult, ActionStatus
from argosy.workload import reasons
from argosy.workload.model import Phase

SOURCES = Path(argosy.__file__).parent
DOCS = SOURCES.parents[1] / "docs"
PACKAGES = ("workload", "dialects", "reconcile", "operator", "capacity", "checkpoint", "agent")
PAGES = [
    "users/trainingrun.md",
    "users/aresjob.md",
    "users/checkpointed-runs.md",
    "administrators/operations.md",
]
READERS = ("workload/observed.py", "workload/gang_schedulers/")
"""Modules that read reasons of Kubernetes and of schedulers, some of which are spelled like ours."""
CAMEL_CASE = re.compile(r"[A-Z][A-Za-z]+")
REASON_ARGUMENT = {
    "EmitEvent": 1,
    ".event": 2,
    "event": 0,
    ".normal": 0,
    ".warning": 0,
    "PhaseResult": 1,
    "WaitReason": 0,
    "with_history": 1,
    "RunCondition": 2,
    "Stated": 2,
    "StatusCondition": 2,
    "Checked": 1,
    "Outcome": 1,
    ".retry": 1,
    "_with_notice": 3,
    "Loss": 0,
    "with_ready": 2,
}
"""Position of the reason among the arguments of what makes statuses and events; `.x` is a method."""


MODULES = {
    "all APIs": reasons,
    "AresJob": ares_reasons,
    "SpotInstanceJob": spot_reasons,
    "ProvisionedInstance": machine_reasons,
    "MachinePool": pool_reasons,
    "CheckpointBackup": backup_reasons,
    "CheckpointRestore and StatefulMigration": migration_reasons,
}
OTHER_WORDS = {"Found", "InvalidCredentials", "Lost", "NotFound", "Provisioning", "Ready", "Unknown"}
"""Words that are also used for something else: by Kubernetes, for phases and for steps."""


def constants(module: ModuleType) -> Mapping[str, str]:
    return {name: value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}


def modules() -> Iterator[Path]:
    for package in PACKAGES:
        for path in sorted((SOURCES / package).rglob("*.py")):
            is_reader = str(path.relative_to(SOURCES)).startswith(READERS)
            if not is_reader and not path.name.endswith("reasons.py"):
                yield path


def without_enums(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield all nodes outside of enums, whose members are words of the model."""
    for statement in tree.body:
        bases = statement.bases if isinstance(statement, ast.ClassDef) else []
        if not any(isinstance(base, ast.Name) and base.id == "StrEnum" for base in bases):
            yield from ast.walk(statement)


def reason_arguments(call: ast.Call) -> Iterator[ast.expr]:
    is_method = isinstance(call.func, ast.Attribute)
    name = call.func.attr if isinstance(call.func, ast.Attribute) else str(getattr(call.func, "id", ""))
    position = REASON_ARGUMENT.get(f".{name}" if is_method else name, REASON_ARGUMENT.get(name))
    if position is not None and len(call.args) > position:
        yield call.args[position]
    yield from (keyword.value for keyword in call.keywords if keyword.arg == "reason")


SHOWN_UNDER_ANOTHER_NAME = {reasons.SPEC_REJECTED, reasons.REPLACEMENT_LIMIT_REACHED}
"""Reasons in the Record for which the APIs that use them have names of their own."""


def literals(path: Path) -> Iterator[str]:
    """Yield the literals in a module that are, or are used as, a reason."""
    modules = (reasons, ares_reasons, machine_reasons)
    defined = {word for module in modules for word in constants(module).values()} - {*Phase, *OTHER_WORDS}
    for node in without_enums(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and node.value in defined:
            yield f"{path.relative_to(SOURCES)}:{node.lineno}: {node.value}"
        if isinstance(node, ast.Call):
            for argument in reason_arguments(node):
                value = argument.value if isinstance(argument, ast.Constant) else None
                if isinstance(value, str) and CAMEL_CASE.fullmatch(value):
                    yield f"{path.relative_to(SOURCES)}:{node.lineno}: {value}"


def test_reasons_stand_in_the_reasons_modules_only() -> None:
    assert [literal for path in modules() for literal in literals(path)] == []


@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES.keys())
def test_every_reason_has_one_constant_in_camel_case_named_after_it(module: ModuleType) -> None:
    for name, value in constants(module).items():
        assert re.sub(r"(?<=[a-z])(?=[A-Z])", "_", value).upper() == name


def test_reason_of_machines_is_defined_once_and_repeated_by_name() -> None:
    defined = Counter(
        value for module in (machine_reasons, pool_reasons, spot_reasons) for value in own_literals(module)
    )
    assert [value for value, count in defined.items() if count > 1] == []


def own_literals(module: ModuleType) -> set[str]:
    """Return the strings that a module itself has as values, not those of other modules that it repeats."""
    assert module.__file__
    statements = ast.parse(Path(module.__file__).read_text()).body
    assigned = (node.value for node in statements if isinstance(node, ast.AnnAssign | ast.Assign))
    return {str(value.value) for value in assigned if isinstance(value, ast.Constant)}


@pytest.mark.parametrize(
    ("module", "pages"),
    [
        (reasons, PAGES),
        (ares_reasons, ["users/aresjob.md"]),
        (spot_reasons, ["users/spotinstancejob.md"]),
        (machine_reasons, ["users/spot-machines.md"]),
        (pool_reasons, ["users/spot-machines.md"]),
        (backup_reasons, ["users/checkpointbackup.md"]),
        (migration_reasons, ["users/checkpointbackup.md"]),
    ],
    ids=MODULES.keys(),
)
def test_every_reason_is_documented(module: ModuleType, pages: list[str]) -> None:
    text = "".join((DOCS / page).read_text() for page in pages)
    shown = {*constants(module).values()} - SHOWN_UNDER_ANOTHER_NAME
    assert [value for value in sorted(shown) if f"`{value}`" not in text] == []


@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES.keys())
def test_every_reason_says_what_it_means(module: ModuleType) -> None:
    assert module.__file__
    lines = Path(module.__file__).read_text().splitlines()
    bare = [
        line
        for line, following in pairwise(lines)
        if re.match(r"[A-Z_]+(: Final)? = ", line) and line[-1] not in "(" and not following.startswith('"""')
    ]
    assert bare == []


FAILURES = {
    "pod rejected for good: PodInvalid": (ActionResult("Pod", "p", ActionStatus.INVALID), "PodInvalid"),
    "pod over quota: PodForbidden": (ActionResult("Pod", "p", ActionStatus.FORBIDDEN), "PodForbidden"),
    "service of another owner: ServiceNameConflict": (
        ActionResult("Service", "s", ActionStatus.NAME_CONFLICT),
        "ServiceNameConflict",
    ),
    "server error for a new pod: PodCreateFailed": (
        ActionResult("Pod", "p", ActionStatus.RETRY),
        "PodCreateFailed",
    ),
    "server error for a deletion: PodDeleteFailed": (
        ActionResult("Pod", "p", ActionStatus.RETRY, verb="Delete"),
        "PodDeleteFailed",
    ),
    "kind with a group: the kind alone": (
        ActionResult("PodGroup.scheduling.volcano.sh", "g", ActionStatus.FORBIDDEN),
        "PodGroupForbidden",
    ),
}


@pytest.mark.parametrize(("result", "want"), FAILURES.values(), ids=FAILURES)
def test_a_failed_action_has_a_reason_of_kind_and_failure(result: ActionResult, want: str) -> None:
    assert reasons.action_failed(result) == want
