"""Tests for rejected pod templates: the message has the path of the field, on a real API server and on ours.

The role is the launcher of MPI, as the operator adds most to its pods: an init container, variables before
those of the user, and volumes and mounts after them.
"""

import copy

import msgspec
import pytest

from argosy.dialects.trainingrun.dialect import training_run_api
from argosy.engine.client import Client
from argosy.engine.clock import SystemClock
from argosy.engine.errors import BadRequest, Invalid, StatusCause, StatusDetails
from argosy.engine.kubeconfig import Connection
from argosy.engine.objects import ApiObject
from argosy.kinds.trainingrun import TrainingRun
from argosy.plan.actions import ActionStatus
from argosy.reconcile.bodies import ByteBudget
from argosy.reconcile.executor import ActionExecutor
from argosy.reconcile.job_state import JobState
from argosy.reconcile.pod_renderer import PodRenderer
from argosy.reconcile.rejections import template_error
from argosy.reconcile.render_context import Helper, RenderContext
from argosy.workload.model import Problems, Workload
from argosy.workload.plan import CreatePod
from tests.support.servers import Server

Json = dict[str, object]
API = training_run_api()
DIALECT = API.dialect
TEMPLATE = "spec.roles.launcher.template"
SITE = RenderContext(helper=Helper(image="helper"), url="https://argosy", ca_pem="PEM")


def template(container: Json | None = None, metadata: Json | None = None, **spec: object) -> Json:
    main = {"name": "main", "image": "image", "env": [{"name": "A", "value": "1"}], **(container or {})}
    first = {"name": "first", "image": "image"}
    fetch = {"name": "fetch", "image": "image"}
    pod = {"initContainers": [fetch], "containers": [first, main], **spec}
    return {"metadata": metadata or {}, "spec": pod}


MAIN = f"{TEMPLATE}.spec.containers[1]"
WRONG: dict[str, tuple[Json, str]] = {
    "command is a string": (template({"command": "true"}), f"{MAIN}.command: "),
    "invalid quantity": (
        template({"resources": {"limits": {"memory": "lots"}}}),
        f"{MAIN}.resources.limits.memory: ",
    ),
    "fractional GPU": (
        template({"resources": {"limits": {"nvidia.com/gpu": "500m"}}}),
        f"{MAIN}.resources.limits[nvidia.com/gpu]: Invalid value: ",
    ),
    "request above limit": (
        template({"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}}),
        f"{MAIN}.resources.requests: Invalid value: ",
    ),
    "port out of range": (
        template({"ports": [{"containerPort": 80}, {"containerPort": 70000}]}),
        f"{MAIN}.ports[1].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
    ),
    "invalid container name": (template({"name": "Main_One"}), f"{MAIN}.name: Invalid value: "),
    "duplicate container name": (
        template({"name": "first"}),
        f'{MAIN}.name: Duplicate value: "first"',
    ),
    "empty image": (template({"image": ""}), f"{MAIN}.image: Required value"),
    "unknown field of a container": (
        template({"comand": ["true"]}),
        f'{MAIN}.comand: unknown field; did you mean "command"?',
    ),
    "unknown field of the pod": (
        template(hostNetworking=True),
        f'{TEMPLATE}.spec.hostNetworking: unknown field; did you mean "hostNetwork"?',
    ),
    "unknown pull policy": (
        template({"imagePullPolicy": "Sometimes"}),
        f'{MAIN}.imagePullPolicy: Unsupported value: "Sometimes"',
    ),
    "mount of an unknown volume": (
        template({"volumeMounts": [{"name": "ghost", "mountPath": "/x"}]}),
        f'{MAIN}.volumeMounts[0].name: Not found: "ghost"',
    ),
    "variable with two sources": (
        template(
            {"env": [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}
        ),
        f"{MAIN}.env[0].valueFrom: Invalid value: ",
    ),
    "init container after those of the operator": (
        template(initContainers=[{"name": "fetch", "image": "i"}, {"name": "B_", "image": "i"}]),
        f"{TEMPLATE}.spec.initContainers[1].name: Invalid value: ",
    ),
    "volume with two sources": (
        template(volumes=[{"name": "a", "emptyDir": {}, "hostPath": {"path": "/"}}]),
        f"{TEMPLATE}.spec.volumes[0].hostPath: Forbidden: ",
    ),
    "invalid toleration": (
        template(tolerations=[{"key": "a", "operator": "Maybe"}]),
        f'{TEMPLATE}.spec.tolerations[0].operator: Unsupported value: "Maybe"',
    ),
    "invalid selector": (
        template(nodeSelector={"a b": "c"}),
        f"{TEMPLATE}.spec.nodeSelector: Invalid value: ",
    ),
    "label value too long": (
        template(metadata={"labels": {"team": "x" * 64}}),
        f"{TEMPLATE}.metadata.labels: Invalid value: ",
    ),
    "two errors": (
        template({"imagePullPolicy": "Sometimes", "ports": [{"containerPort": 0}]}),
        f"{MAIN}.ports[0].containerPort: Required value; {MAIN}.imagePullPolicy: Unsupported value: ",
    ),
}


@pytest.mark.parametrize(("wrong", "want"), WRONG.values(), ids=WRONG.keys())
async def test_a_rejection_names_the_field_of_the_template(
    wrong: Json, want: str, api: Server, namespace: str
) -> None:
    assert (await _rejection_message(wrong, api, namespace)).startswith(want)


async def test_a_valid_template_is_accepted(api: Server, namespace: str) -> None:
    assert await _rejection_message(template(), api, namespace) == ""


async def _rejection_message(written: Json, api: Server, namespace: str) -> str:
    """Return the message that the run's status would have about the first pod of its launcher."""
    roles = {"launcher": {"template": written}, "worker": {"template": template()}}
    run = {
        "metadata": {"name": "mnist", "namespace": namespace, "uid": "u"},
        "spec": {"framework": "mpi", "roles": roles},
    }
    lowered = DIALECT.to_workload(msgspec.convert(run, TrainingRun))
    if isinstance(lowered, Problems):
        return str(lowered)
    memory = JobState(uid="u")
    async with Client(Connection.from_kubeconfig(api.kubeconfig)) as client:
        await _performer(client, lowered, memory).execute([CreatePod("launcher", 0, 1, 0)])
    outcome = next(iter(memory.retries.failures.values()), None)
    assert outcome is None or outcome.status is ActionStatus.SPEC_REJECTED, outcome
    return outcome.message if outcome else ""


class _Unseen:
    def put(self, obj: ApiObject, *, metadata_only: bool = False) -> None: ...


def _performer(client: Client, workload: Workload, memory: JobState) -> ActionExecutor:
    maker = PodRenderer(SITE, lambda uid: "token")

    def body(action: CreatePod, name: str) -> Json:
        pod = maker.for_job(workload, training_run_api().inject).render(action, name)
        spec = pod["spec"]
        assert isinstance(spec, dict)
        spec["serviceAccountName"] = "default"  # there is no operator here to make the account
        return pod

    return ActionExecutor(
        client,
        SystemClock(),
        _Unseen(),
        workload,
        TrainingRun,
        memory,
        body,
        lambda *place: API.pod_name(workload, *place),
        ByteBudget(),
    )


BODY: Json = {
    "metadata": {"name": "a", "labels": {"ours": "1", "team": "b"}},
    "spec": {
        "hostname": "a",
        "containers": [
            {"name": "main", "env": [{"name": "OURS"}, {"name": "A"}, {"name": "B"}], "volumeMounts": []}
        ],
        "volumes": [{"name": "data"}, {"name": "argosy"}],
        "dnsConfig": {"searches": ["corp", "ours"]},
    },
}
WRITTEN: Json = {
    "metadata": {"labels": {"team": "b"}},
    "spec": {
        "containers": [{"name": "main", "env": [{"name": "A"}, {"name": "B"}]}],
        "volumes": [{"name": "data"}],
        "dnsConfig": {"searches": ["corp"]},
    },
}
PLACES = {
    "variable in the template: its path there": (
        "spec.containers[0].env[2].name",
        "t.spec.containers[0].env[1].name: no",
    ),
    "injected variable: no path": ("spec.containers[0].env[0].name", ""),
    "injected mount: no path": ("spec.containers[0].volumeMounts[0].name", ""),
    "volume in the template: its path there": ("spec.volumes[0].emptyDir", "t.spec.volumes[0].emptyDir: no"),
    "injected volume: no path": ("spec.volumes[1].emptyDir", ""),
    "search domain in the template: its path there": (
        "spec.dnsConfig.searches[0]",
        "t.spec.dnsConfig.searches[0]: no",
    ),
    "injected search domain: no path": ("spec.dnsConfig.searches[1]", ""),
    "host name, set by the operator: no path": ("spec.hostname", ""),
    "name, set by the operator: no path": ("metadata.name", ""),
    "label in the template: its path there": ("metadata.labels[team]", "t.metadata.labels[team]: no"),
    "field in neither: its path in the template": (
        "spec.containers[0].image",
        "t.spec.containers[0].image: no",
    ),
    "no field: no path": ("", ""),
}


@pytest.mark.parametrize(("field", "want"), PLACES.values(), ids=PLACES.keys())
def test_path_of_a_rejected_field_in_the_template(field: str, want: str) -> None:
    error = Invalid(
        422, "Invalid", "no", details=StatusDetails(causes=[StatusCause("FieldValueInvalid", "no", field)])
    )
    assert template_error(error, copy.deepcopy(WRITTEN), BODY, "t") == want


def test_only_the_first_rejected_fields_are_named() -> None:
    causes = [StatusCause("FieldValueInvalid", "no", f"spec.{letter}") for letter in "abcdeaf"]
    message = template_error(
        Invalid(422, "Invalid", "", details=StatusDetails(causes=causes)), WRITTEN, BODY, "t"
    )
    assert message == "t.spec.a: no; t.spec.b: no; t.spec.c: no; t.spec.d: no; and 2 more"


def test_a_rejection_without_a_field_is_reported_unchanged() -> None:
    assert (
        template_error(BadRequest(400, "BadRequest", "cannot be handled as a Pod"), WRITTEN, BODY, "t") == ""
    )
