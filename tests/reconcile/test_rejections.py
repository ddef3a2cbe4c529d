"""Wrong pod templates, told with the path at which they were written: on a real API server and on ours.

The role is MPI's launcher, into whose pods the operator puts most: a container before the user's own,
variables before his, volumes and mounts after them.
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
    "a command that is text": (template({"command": "true"}), f"{MAIN}.command: "),
    "a quantity that is none": (
        template({"resources": {"limits": {"memory": "lots"}}}),
        f"{MAIN}.resources.limits.memory: ",
    ),
    "half a GPU": (
        template({"resources": {"limits": {"nvidia.com/gpu": "500m"}}}),
        f"{MAIN}.resources.limits[nvidia.com/gpu]: Invalid value: ",
    ),
    "more asked for than allowed": (
        template({"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}}),
        f"{MAIN}.resources.requests: Invalid value: ",
    ),
    "a port that is out of range": (
        template({"ports": [{"containerPort": 80}, {"containerPort": 70000}]}),
        f"{MAIN}.ports[1].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
    ),
    "a container whose name is none": (template({"name": "Main_One"}), f"{MAIN}.name: Invalid value: "),
    "two containers of one name": (
        template({"name": "first"}),
        f'{MAIN}.name: Duplicate value: "first"',
    ),
    "no image": (template({"image": ""}), f"{MAIN}.image: Required value"),
    "a field that is none": (
        template({"comand": ["true"]}),
        f'{MAIN}.comand: unknown field; did you mean "command"?',
    ),
    "a field of the pod that is none": (
        template(hostNetworking=True),
        f'{TEMPLATE}.spec.hostNetworking: unknown field; did you mean "hostNetwork"?',
    ),
    "a pull policy that is none": (
        template({"imagePullPolicy": "Sometimes"}),
        f'{MAIN}.imagePullPolicy: Unsupported value: "Sometimes"',
    ),
    "a mount of a volume that is not there": (
        template({"volumeMounts": [{"name": "ghost", "mountPath": "/x"}]}),
        f'{MAIN}.volumeMounts[0].name: Not found: "ghost"',
    ),
    "a variable from two sources": (
        template(
            {"env": [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}
        ),
        f"{MAIN}.env[0].valueFrom: Invalid value: ",
    ),
    "an init container, behind the operator's own": (
        template(initContainers=[{"name": "fetch", "image": "i"}, {"name": "B_", "image": "i"}]),
        f"{TEMPLATE}.spec.initContainers[1].name: Invalid value: ",
    ),
    "two kinds of one volume": (
        template(volumes=[{"name": "a", "emptyDir": {}, "hostPath": {"path": "/"}}]),
        f"{TEMPLATE}.spec.volumes[0].hostPath: Forbidden: ",
    ),
    "a toleration that is none": (
        template(tolerations=[{"key": "a", "operator": "Maybe"}]),
        f'{TEMPLATE}.spec.tolerations[0].operator: Unsupported value: "Maybe"',
    ),
    "a selector that is none": (
        template(nodeSelector={"a b": "c"}),
        f"{TEMPLATE}.spec.nodeSelector: Invalid value: ",
    ),
    "a label that is too long": (
        template(metadata={"labels": {"team": "x" * 64}}),
        f"{TEMPLATE}.metadata.labels: Invalid value: ",
    ),
    "two at once": (
        template({"imagePullPolicy": "Sometimes", "ports": [{"containerPort": 0}]}),
        f"{MAIN}.ports[0].containerPort: Required value; {MAIN}.imagePullPolicy: Unsupported value: ",
    ),
}


@pytest.mark.parametrize(("wrong", "want"), WRONG.values(), ids=WRONG.keys())
async def test_told_where_it_was_written(wrong: Json, want: str, api: Server, namespace: str) -> None:
    assert (await _told(wrong, api, namespace)).startswith(want)


async def test_what_is_right_is_accepted(api: Server, namespace: str) -> None:
    assert await _told(template(), api, namespace) == ""


async def _told(written: Json, api: Server, namespace: str) -> str:
    """What the run's status would say of its launcher's first pod."""
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
    "a variable of the user's": ("spec.containers[0].env[2].name", "t.spec.containers[0].env[1].name: no"),
    "a variable of ours": ("spec.containers[0].env[0].name", ""),
    "a mount of ours": ("spec.containers[0].volumeMounts[0].name", ""),
    "a volume of the user's": ("spec.volumes[0].emptyDir", "t.spec.volumes[0].emptyDir: no"),
    "a volume of ours": ("spec.volumes[1].emptyDir", ""),
    "a domain of the user's": ("spec.dnsConfig.searches[0]", "t.spec.dnsConfig.searches[0]: no"),
    "a domain of ours": ("spec.dnsConfig.searches[1]", ""),
    "the host name, which is ours": ("spec.hostname", ""),
    "the name, which is ours": ("metadata.name", ""),
    "a label of the user's": ("metadata.labels[team]", "t.metadata.labels[team]: no"),
    "what nobody wrote": ("spec.containers[0].image", "t.spec.containers[0].image: no"),
    "no path at all": ("", ""),
}


@pytest.mark.parametrize(("field", "want"), PLACES.values(), ids=PLACES.keys())
def test_what_the_operator_put_there_is_not_blamed_on_the_user(field: str, want: str) -> None:
    error = Invalid(
        422, "Invalid", "no", details=StatusDetails(causes=[StatusCause("FieldValueInvalid", "no", field)])
    )
    assert template_error(error, copy.deepcopy(WRITTEN), BODY, "t") == want


def test_of_many_a_few_are_told() -> None:
    causes = [StatusCause("FieldValueInvalid", "no", f"spec.{letter}") for letter in "abcdeaf"]
    said = template_error(
        Invalid(422, "Invalid", "", details=StatusDetails(causes=causes)), WRITTEN, BODY, "t"
    )
    assert said == "t.spec.a: no; t.spec.b: no; t.spec.c: no; t.spec.d: no; and 2 more"


def test_a_refusal_without_a_field_is_told_as_it_came() -> None:
    assert (
        template_error(BadRequest(400, "BadRequest", "cannot be handled as a Pod"), WRITTEN, BODY, "t") == ""
    )
