"""ProvisionedInstances in virtual time: the real reconciler and driver, the rehearsal cloud, and a small
runner.

The runner does what `reconcile.runner` does, in its order: decide, write the status, then start calls; it
holds answers in memory only. Every status write and every request to the cloud counts, and the operator can
be killed at any of them, before it is done or before its answer arrives. As with a killed process, nothing is
sent after that, and what was only in memory is lost.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from argosy.capacity.catalog import EMPTY, Catalog
from argosy.capacity.drivers.gce import GceDriver
from argosy.capacity.join import TOKEN_DRIVER, CreateToken, DeleteToken
from argosy.capacity.machine_plan import NODE_PODS, NodePods
from argosy.capacity.machine_record import MachineState
from argosy.capacity.provider import CLUSTER_VIEW, ClusterIdentity
from argosy.capacity.providers.gce import DRIVER
from argosy.dialects.spot.instance import (
    JOB_INDEX,
    MACHINE_INDEX,
    InstanceReconciler,
    instances_by_job,
    instances_by_machine,
)
from argosy.dialects.spot.instance_record import InstanceRecord
from argosy.dialects.spot.settings import SpotSettings
from argosy.kinds.kubernetes import Node, NodeStatus
from argosy.kinds.machinepool import MachinePool
from argosy.kinds.meta import Condition, ObjectMeta
from argosy.kinds.spot import INSTANCE_FINALIZER, SpotInstanceJob
from argosy.kinds.spot_machines import (
    InstanceTemplate,
    ProvisionedInstance,
    ProvisionedInstanceStatus,
    SpotInstanceVM,
)
from argosy.kinds.status_condition import SecretReference
from argosy.local.gce.api import ApiRequest, GceApi
from argosy.local.gce.cloud import Cloud, Instance, Latency
from argosy.plan.actions import Call, CallResult, CallStatus, EmitEvent, Patch, Remove
from argosy.plan.contract import Inputs, Matching, Need, Ref, View, ViewState
from argosy.plan.drivers import SECRET, Refusal, SecretContent
from argosy.plan.record import decode_record
from argosy.reconcile.runner import DecisionObserver
from argosy.wire.client import Response
from tests.support.clouds.strict_gce import StrictGate
from tests.support.spot_instances import CREDENTIALS, JOIN, NAMESPACE, seed_template

START = datetime(2026, 1, 1, tzinfo=UTC)


class Killed(BaseException):
    """The operator is killed here."""


class _Client:
    """Takes the place of the HTTP client: requests are answered by the cloud at once."""

    def __init__(self, world: "World") -> None:
        self._world = world

    async def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None,
        *,
        check: Callable[[], None] | None,
        **_: Any,
    ) -> Response:
        if check is not None:
            check()
        status, content = self._world.request(lambda: self._world.api.handle(method, target, body))
        return Response(status, {}, content)

    async def close(self) -> None: ...


@dataclass
class World:
    """Everything outside of the operator: stored objects, the cloud, nodes, and the time."""

    settings: SpotSettings = field(default_factory=SpotSettings)
    catalog: Catalog = EMPTY
    latency: Latency = field(default_factory=Latency)
    join_seconds: float | None = 20.0
    """From RUNNING until the Node is there; None: it never comes."""
    gpus: int = 1
    node_ready: bool = True
    kill_at: int = 0
    """The number of the request at which the operator is killed; 0: never."""
    answered: bool = False
    """Whether that request is done first."""

    timer: Callable[[], float] = lambda: 0.0
    """What measures reconciles."""

    observer: DecisionObserver[ProvisionedInstance] | None = None

    def __post_init__(self) -> None:
        self.now = START
        self.gate = StrictGate(is_recorded=self._is_recorded)
        self.cloud = Cloud(lambda: self.now, self.latency)
        self.api = GceApi(self.cloud, self.gate)
        self.cloud.subscribe(self._machine_changed)
        self.secrets: dict[str, SecretContent] = {
            "gcp-credentials": SecretContent({"credentials.json": CREDENTIALS}),
            "kubeadm-join-token": SecretContent(JOIN),
        }
        self.templates: dict[str, SpotInstanceVM | InstanceTemplate] = {"vm": seed_template()}
        self.jobs: dict[str, SpotInstanceJob] = {}
        self.pools: dict[str, MachinePool] = {}
        self.objects: dict[str, ProvisionedInstance] = {}
        self.nodes: dict[str, Node] = {}
        self.tokens: dict[str, str] = {}
        self.joining: list[tuple[datetime, Instance]] = []
        self.events: list[tuple[str, EmitEvent]] = []
        self.names: set[tuple[str, str]] = set()
        """Zone and name of every VM that a Record has ever named."""
        self.requests = 0
        self.lease_ends: datetime | None = None
        self.reconcile_seconds: list[float] = []
        """What each reconcile took, without what this simulator does for it."""
        self.operator = Operator(self)

    def create(self, name: str = "vm-0", **spec: Any) -> ProvisionedInstance:
        uid = f"uid-{name}".replace(".", "_")
        meta = ObjectMeta(name=name, namespace=NAMESPACE, uid=uid, generation=1, creation_timestamp=self.now)
        base = ProvisionedInstance(meta).spec
        wanted = {
            "instance_template_name": "vm",
            "instance_template_kind": "SpotInstanceVM",
            "gcp_credentials_secret_ref": SecretReference("gcp-credentials"),
            **spec,
        }
        self.objects[name] = ProvisionedInstance(meta, replace(base, **wanted))
        return self.objects[name]

    def delete(self, name: str = "vm-0") -> None:
        obj = self.objects.get(name)
        if obj is None:
            return
        if INSTANCE_FINALIZER not in obj.metadata.finalizers:
            del self.objects[name]
            return
        self.objects[name] = replace(obj, metadata=replace(obj.metadata, deletion_timestamp=self.now))

    def request(self, do: Callable[[], Any]) -> Any:
        """Do a request of the operator, unless it is killed at it."""
        self.requests += 1
        if self.operator.is_dead:
            raise Killed
        if self.kill_at and self.requests == self.kill_at:
            if self.answered:
                do()
            self.operator.is_dead = True
            raise Killed
        return do()

    def replace_operator(self) -> None:
        """Start another operator, which knows only what is stored."""
        self.kill_at = 0
        self.operator = Operator(self)

    async def run(self, seconds: float, until: Callable[[], bool] = lambda: False, step: float = 1.0) -> bool:
        """Let time pass, and the operator work, until a condition holds. Return whether it does."""
        end = self.now + timedelta(seconds=seconds)
        while self.now < end:
            try:
                await self.operator.work()
            except Killed:
                self.replace_operator()
            if until():
                return True
            self.now += timedelta(seconds=step)
            self._pass_time()
        return until()

    def status(self, name: str = "vm-0") -> ProvisionedInstanceStatus:
        return self.objects[name].status

    def condition(self, kind: str, name: str = "vm-0") -> tuple[str, str, str]:
        found = next((each for each in self.status(name).conditions if each.type == kind), None)
        return (found.status, found.reason, found.message) if found else ("", "", "")

    def state(self, name: str = "vm-0") -> MachineState:
        record = decode_record(self.status(name).argosy, InstanceRecord)
        return record.machine.state if record else MachineState.WANTED

    def reasons(self) -> list[str]:
        return [told.reason for _, told in self.events]

    def is_ready(self, name: str = "vm-0") -> bool:
        return self.condition("NodeReady", name)[0] == "True"

    def machines(self) -> list[str]:
        self.cloud.advance()
        return sorted(instance.name for instance in self.cloud.instances.values())

    def _pass_time(self) -> None:
        self.cloud.advance()
        for at, instance in list(self.joining):
            if at <= self.now:
                self.joining.remove((at, instance))
                if instance.status == "RUNNING":
                    self._add_node(instance)

    def _machine_changed(self, instance: Instance, change: str) -> None:
        if change == "Running" and self.join_seconds is not None:
            self.joining.append((self.now + timedelta(seconds=self.join_seconds), instance))

    def _add_node(self, instance: Instance) -> None:
        ready = Condition("Ready", "True" if self.node_ready else "False", message="kubelet")
        meta = ObjectMeta(name=instance.name, uid=f"node-{instance.id}", creation_timestamp=self.now)
        allocatable = {"nvidia.com/gpu": str(self.gpus)} if self.gpus else {}
        self.nodes[instance.name] = Node(meta, status=NodeStatus(allocatable, [ready]))

    def _is_recorded(self, request: ApiRequest) -> bool:
        wanted = (request.project, request.zone, request.body.get("name"))
        for obj in self.objects.values():
            if obj.status.instance_name != wanted[2]:
                continue
            record = decode_record(obj.status.argosy, InstanceRecord)
            if record is not None:
                machine = record.machine
                if (machine.project, machine.zone, machine.name) == wanted and machine.sent:
                    return True
        return False

    def store(self, obj: ProvisionedInstance) -> None:
        self.objects[obj.metadata.name] = obj
        record = decode_record(obj.status.argosy, InstanceRecord)
        if record is not None and record.machine.zone:
            self.names.add((record.machine.zone, record.machine.name))


class Operator:
    """One process: what it holds in memory is lost with it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_dead = False
        self.reconciler = InstanceReconciler(world.settings, world.catalog)
        self.driver = GceDriver("http://cloud", self._check_lease)
        self.driver._client = cast("Any", _Client(world))
        self.answers: dict[str, dict[str, CallResult]] = {}
        self.views: dict[View, tuple[datetime, ViewState]] = {}
        self._indexed: set[str] = set()
        self._index: dict[tuple[str, str], list[str]] = {}

    async def work(self) -> None:
        """Reconcile every object until nothing more happens at this moment."""
        for _ in range(20):
            busy = False
            for name in sorted(self.world.objects):
                busy = await self._reconcile(name) or busy
            if not busy:
                return

    async def _reconcile(self, name: str) -> bool:
        """Return True if something has changed, so that it is worth reconciling again at once."""
        world = self.world
        obj = world.objects.get(name)
        if obj is None:
            return False
        start = world.timer()
        record = decode_record(obj.status.argosy, InstanceRecord)
        needs = tuple(self.reconciler.needs(obj, record))
        seconds = world.timer() - start
        inputs = await self._inputs(name, needs)
        start = world.timer()
        decision = self.reconciler.decide(obj, record, inputs, world.now)
        encoded = msgspec.json.encode(decision.status)
        world.reconcile_seconds.append(seconds + world.timer() - start)
        changed = await self._write(obj, decision, encoded)
        if world.observer is not None:
            world.observer.decided(obj, decision)
        world.events += [(name, told) for told in decision.events]
        calls = [action for action in decision.actions if isinstance(action, Call)]
        answers = self.answers.setdefault(name, {})
        for key in [key for key in answers if key not in {call.key for call in calls}]:
            del answers[key]
        for action in decision.actions:
            self._act(action)
        for call in calls:
            if call.key not in answers:
                answers[call.key] = await self._call(call)
                changed = True
        if decision.released and world.objects.get(name) is not None:
            world.request(lambda: world.objects.pop(name))
            self.answers.pop(name, None)
        return changed

    async def _write(self, obj: ProvisionedInstance, decision: Any, encoded: bytes) -> bool:
        world, name = self.world, obj.metadata.name
        current = world.objects[name]
        if decision.actions and INSTANCE_FINALIZER not in current.metadata.finalizers:
            finalized = replace(current.metadata, finalizers=[INSTANCE_FINALIZER])
            world.request(lambda: world.store(replace(current, metadata=finalized)))
            current = world.objects[name]
        if decision.status == current.status:
            return False
        status = msgspec.json.decode(encoded, type=type(decision.status))
        world.request(lambda: world.store(replace(world.objects[name], status=status)))
        return True

    def _act(self, action: object) -> None:
        world = self.world
        if isinstance(action, Remove):
            node = world.nodes.get(action.name)
            if node is not None and node.metadata.uid == action.uid:
                world.request(lambda: world.nodes.pop(action.name))
        elif isinstance(action, Patch):
            world.request(lambda: self._patch_node(action))

    def _patch_node(self, action: Patch) -> None:
        node = self.world.nodes.get(action.name)
        if node is None or node.metadata.uid != action.uid:
            return
        patch = cast("Mapping[str, Any]", action.patch)
        meta, spec = node.metadata, patch.get("spec", {})
        changed = replace(
            meta,
            labels={**meta.labels, **patch["metadata"].get("labels", {})},
            annotations={**meta.annotations, **patch["metadata"].get("annotations", {})},
        )
        closed = replace(node.spec, unschedulable=spec.get("unschedulable", node.spec.unschedulable))
        self.world.nodes[action.name] = replace(node, metadata=changed, spec=closed)

    async def _inputs(self, name: str, needs: Iterable[Need]) -> Inputs:
        world = self.world
        found: dict[Any, tuple[Any, ...]] = {}
        views: dict[View, ViewState] = {}
        for need in needs:
            if isinstance(need, View):
                views[need] = await self._view(need)
            elif isinstance(need, Matching):
                found[need] = self._matching(need) if need.kind is ProvisionedInstance else ()
            elif isinstance(need, Ref):
                tables: dict[Any, Mapping[str, Any]] = {
                    SpotInstanceVM: world.templates,
                    InstanceTemplate: world.templates,
                    Node: world.nodes,
                    SpotInstanceJob: world.jobs,
                    MachinePool: world.pools,
                }
                one = tables[need.kind].get(need.name)
                found[need] = (one,) if isinstance(one, need.kind) else ()
        return Inputs(found=found, call_results=dict(self.answers.get(name, {})), views=views)

    def _matching(self, need: Matching[Any]) -> tuple[ProvisionedInstance, ...]:
        """Return the objects by an index, which is made once for each set of names: values do not change."""
        objects = self.world.objects
        if self._indexed != objects.keys():
            self._indexed, self._index = set(objects), {}
            for name, obj in objects.items():
                for value in instances_by_machine(obj):
                    self._index.setdefault((MACHINE_INDEX, value), []).append(name)
                for value in instances_by_job(obj):
                    self._index.setdefault((JOB_INDEX, value), []).append(name)
        return tuple(objects[name] for name in self._index.get((need.index, need.value), ()))

    async def _view(self, view: View) -> ViewState:
        world = self.world
        if view.driver == CLUSTER_VIEW.driver:
            return ViewState(ClusterIdentity("cluster-uid"), world.now)
        if view.driver == NODE_PODS:
            return ViewState(NodePods(), world.now)
        if view.driver == SECRET:
            assert view.credentials is not None
            content = world.secrets.get(view.credentials.name)
            problem = "" if content else f"secret {NAMESPACE}/{view.credentials.name} not found"
            return ViewState(content, world.now, problem)
        due, state = self.views.get(view, (world.now, ViewState()))
        if world.now >= due:
            state = await self._fetch(view, state)
            self.views[view] = (world.now + timedelta(seconds=view.interval_seconds), state)
        return state

    async def _fetch(self, view: View, before: ViewState) -> ViewState:
        world = self.world
        try:
            value = await self.driver.fetch(view.scope, self._secret("gcp-credentials"))
        except Refusal as refusal:
            return ViewState(before.value, before.at, str(refusal))
        except OSError as error:
            return ViewState(before.value, before.at, f"{view.driver}: {error}")
        return ViewState(value, world.now)

    async def _call(self, call: Call) -> CallResult:
        world = self.world
        if call.driver == TOKEN_DRIVER:
            return cast("CallResult", world.request(lambda: self._token(call)))
        assert call.driver == DRIVER
        credentials = dict(self._secret(call.credentials.name if call.credentials else ""))
        for role, ref in call.secrets.items():
            content = self._secret(ref.name)
            credentials |= {f"{role}/{key}": value for key, value in content.items()}
        if not credentials:
            return CallResult(call.key, CallStatus.NO_CREDENTIALS, message="secret not found")
        try:
            value = await self.driver.call(call.request, credentials)
        except Refusal as refusal:
            return CallResult(call.key, CallStatus.REFUSED, refusal.value, refusal.code, refusal.message)
        except OSError as error:
            return CallResult(call.key, CallStatus.UNAVAILABLE, message=str(error))
        return CallResult(call.key, value=value)

    def _token(self, call: Call) -> CallResult:
        request: Struct = call.request
        if isinstance(request, CreateToken):
            self.world.tokens.setdefault(request.id, request.uid)
        elif isinstance(request, DeleteToken):
            self.world.tokens.pop(request.id, None)
        return CallResult(call.key)

    def _secret(self, name: str) -> Mapping[str, bytes]:
        if name.startswith("bootstrap-token-"):
            token_id = name.removeprefix("bootstrap-token-")
            return {"token-id": token_id.encode(), "token-secret": b"0123456789abcdef"}
        content = self.world.secrets.get(name)
        return content.data if content is not None else {}

    def _check_lease(self) -> None:
        world = self.world
        if world.lease_ends is not None and world.now >= world.lease_ends:
            raise Refusal("LEASE", "expired")
