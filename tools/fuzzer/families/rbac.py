"""RBAC: roles granted to a user without rights, changed and revoked, and the requests of that user.

Rights take effect with a delay. Each grant therefore contains one extra right, to read an object that does
not exist; the sequence waits until the response to that is NotFound instead of Forbidden.
"""

from collections.abc import Callable
from dataclasses import replace

from tests.support.differential import Step, apply, get, post
from tests.support.servers import READER
from tools.fuzzer.context import Context
from tools.fuzzer.families.apply import apply as apply_object
from tools.fuzzer.families.create import create
from tools.fuzzer.families.delete import remove, remove_all
from tools.fuzzer.families.patch import merge_patch
from tools.fuzzer.families.read import list_all, read
from tools.fuzzer.families.subresources import write_status
from tools.fuzzer.families.update import update
from tools.fuzzer.fields import Json

RBAC = "rbac.authorization.k8s.io"
ROOT = f"/apis/{RBAC}/v1/namespaces/$ns"
REVIEWS = "/apis/authorization.k8s.io/v1"
_SUBJECTS = (
    {"kind": "User", "apiGroup": RBAC, "name": READER.name},
    {"kind": "Group", "apiGroup": RBAC, "name": "readers"},
)
_VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "*")
_DONE: tuple[Callable[[Context], list[Step]], ...] = (
    *(create, update, apply_object, merge_patch, remove, remove_all, read, list_all, write_status),
)


def grant(context: Context) -> list[Step]:
    """Grant the reader some rights in the namespace of the sequence, instead of earlier ones."""
    mark = f"mark-{len(context.saves)}"
    context.save(context.kind())
    sign = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": [mark]}
    rules = [_rule(context) for _ in range(context.draw.number(1, 2))]
    role = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "Role",
        "metadata": {"name": "granted"},
        "rules": [*rules, sign],
    }
    return [
        apply(f"{ROOT}/roles/granted?force=true", role, "granter"),
        apply(f"{ROOT}/rolebindings/granted?force=true", _binding(context.draw.pick(_SUBJECTS)), "granter"),
        get(f"/api/v1/namespaces/$ns/configmaps/{mark}", user=READER, until_code=404, shown=False),
    ]


def _binding(subject: dict[str, str], **role: str) -> Json:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "granted"},
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "granted", **role},
        "subjects": [subject],
    }


def _rule(context: Context) -> Json:
    kind, draw = context.kind(), context.draw
    group = kind.api_version.rpartition("/")[0]
    part = draw.pick(("", "", "", "/status", "/*"))
    rule: Json = {
        "apiGroups": [draw.pick((group, group, group, "*", "other"))],
        "resources": [draw.pick((f"{kind.plural}{part}", kind.plural, "*"))],
        "verbs": draw.some(_VERBS, 1, 4),
    }
    if draw.chance(25):
        rule["resourceNames"] = draw.some(("a", "b"), 1, 2)
    return rule


def as_reader(context: Context) -> list[Step]:
    """Steps of the other families, as the reader."""
    steps = context.draw.pick(_DONE)(context)
    return [replace(step, user=READER) if step.shown else step for step in steps]


def ask_rights(context: Context) -> list[Step]:
    """Request an access review for the reader."""
    kind = context.kind()
    asked = {
        "namespace": "$ns",
        "group": kind.api_version.rpartition("/")[0],
        "resource": kind.plural,
        "verb": context.draw.pick(_VERBS),
        "name": context.draw.pick(("", "a")),
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    return [post(f"{REVIEWS}/selfsubjectaccessreviews", body, user=READER, hide=("metadata",))]


def escalate(context: Context) -> list[Step]:
    """The reader tries to grant rights, or a role or binding is invalid."""
    role = {"metadata": {"name": "more"}, "rules": [_rule(context)]}
    if context.draw.chance(50):
        return [post(f"{ROOT}/roles", role, user=READER)]
    wrong = context.draw.pick(_WRONG)
    where = "rolebindings" if "roleRef" in wrong else "roles"
    return [post(f"{ROOT}/{where}", wrong)]


_READS: Json = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
_WRONG: tuple[Json, ...] = (
    {"metadata": {"name": "w"}, "rules": [{**_READS, "verbs": []}]},
    {"metadata": {"name": "w"}, "rules": [{**_READS, "apiGroups": []}]},
    {"metadata": {"name": "w"}, "rules": [{**_READS, "resources": []}]},
    {"metadata": {"name": "w"}, "rules": [{"nonResourceURLs": ["/x"], "verbs": ["get"]}]},
    {"metadata": {"name": "w"}, "rules": "text"},
    {"metadata": {"name": "bad/name"}, "rules": [_READS]},
    _binding(_SUBJECTS[0], kind="Nonsense"),
    _binding(_SUBJECTS[0], name=""),
    _binding(_SUBJECTS[0], apiGroup="other"),
    _binding({"kind": "Nonsense", "name": "x"}),
    _binding({"kind": "User", "name": ""}),
    _binding({"kind": "ServiceAccount", "name": "x"}),
)
