"""Reconciles ProvisionedInstances: each is one VM, from its request to its deletion.

What is decided about the VM is in `capacity.machines`. Here is what a ProvisionedInstance adds: where its
template, Secrets, job and Node are, what of them may be used, and what its status says.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from argosy.capacity import reasons
from argosy.capacity.catalog import EMPTY, Catalog, Prices
from argosy.capacity.join import AUTO, JOIN_ROLE, TOKEN, JoinPlan, join_values
from argosy.capacity.machine_plan import NODE_PODS, MachineFacts, NodePods, event, machine_view
from argosy.capacity.machine_record import MachineRecord, MachineSpec, MachineState
from argosy.capacity.machines import Machines
from argosy.capacity.provider import CLUSTER_VIEW, ClusterIdentity, Identity, ObservedMachine, ZoneState
from argosy.capacity.providers.gce import Gce
from argosy.capacity.settings import MachineSettings
from argosy.dialects.spot import instance_inputs as read
from argosy.dialects.spot import names
from argosy.dialects.spot.instance_inputs import Checked, Template
from argosy.dialects.spot.instance_nodes import node_actions
from argosy.dialects.spot.instance_record import InstanceRecord
from argosy.dialects.spot.instance_status import Shown, instance_status
from argosy.dialects.spot.settings import SpotSettings
from argosy.dialects.spot.zone_policy import buying_rules, is_choosing, recorded_rates, zone_policy
from argosy.kinds.kubernetes import Node
from argosy.kinds.machinepool import MachinePool
from argosy.kinds.spot import (
    FORCE_DELETE,
    INSTANCE_FINALIZER,
    JOB_LABEL,
    REPLICA_LABEL,
    SpotInstanceJob,
)
from argosy.kinds.spot_machines import InstanceTemplate, ProvisionedInstance, SpotInstanceVM
from argosy.plan.actions import EmitEvent, SecretRef
from argosy.plan.children import KubernetesObject
from argosy.plan.contract import Decision, Inputs, Matching, Need, Ref, View, ViewState
from argosy.plan.drivers import secret_view
from argosy.workload.announcements import NoticeRules

JOB_INDEX = "job"
"""Index of ProvisionedInstances by namespace and uid of their job or pool."""
TEMPLATE_INDEX = "template"
"""Index of ProvisionedInstances by their template."""
MACHINE_INDEX = "machine"
"""Index of ProvisionedInstances by the name of their VM, which is that of the Node."""
PROVIDER_INDEX = "provider-id"
"""Index of Nodes by what their cloud calls them."""

K = TypeVar("K", bound=KubernetesObject)


class InstanceReconciler(Struct, frozen=True):
    """The reconciler."""

    settings: SpotSettings = SpotSettings()
    catalog: Catalog = EMPTY
    rules: NoticeRules = NoticeRules()

    @property
    def record(self) -> type[InstanceRecord]:
        return InstanceRecord

    @property
    def owns(self) -> tuple[type[KubernetesObject], ...]:
        return ()

    @property
    def finalizer(self) -> str:
        return INSTANCE_FINALIZER

    @property
    def machines(self) -> Machines:
        return Machines(Gce(), machine_settings(self.settings))

    def needs(self, obj: ProvisionedInstance, record: InstanceRecord | None) -> Iterable[Need]:
        found = record or InstanceRecord()
        yield template_ref(obj)
        yield secret_view(credentials_of(obj))
        yield CLUSTER_VIEW
        if found.join_secret:
            yield secret_view(SecretRef(found.join_secret))
        name = found.machine.name or names.machine_name(obj.metadata.name)
        yield Ref(Node, name)
        yield _namesakes(obj)
        if found.machine.zone:
            yield Matching(Node, PROVIDER_INDEX, read.provider_id(found.machine))
        if (job := _job_ref(obj)) is not None:
            yield job
        if (siblings := _siblings(obj, found)) is not None:
            yield siblings
        if (pool := _pool_ref(obj, found)) is not None:
            yield pool
        if view := self._view(found):
            yield view
        if found.machine.state is MachineState.JOINED:
            yield _pods_view(found.machine)

    def decide(
        self, obj: ProvisionedInstance, record: InstanceRecord | None, inputs: Inputs, now: datetime
    ) -> Decision:
        before = record or InstanceRecord()
        gathered = self._gather(obj, before, inputs)
        facts = self._facts(obj, before, gathered, inputs, now)
        plan = self.machines.decide(before.machine, facts)
        after = replace(before, machine=plan.record, join_secret=gathered.join_secret or before.join_secret)
        seen = _seen(plan.record, before, gathered.zone)
        shown = Shown(
            record=after,
            seen=seen,
            node=facts.node if plan.record.node_uid else None,
            template=gathered.template,
            credentials=gathered.credentials,
            join=gathered.join,
            needs_gpus=facts.needs_gpus,
            withdrawn=_is_withdrawn(before.machine, plan.record),
            now=now,
        )
        status = instance_status(obj, shown)
        actions = (*plan.calls, *node_actions(obj, after.machine, gathered.node))
        is_other = set(self.needs(obj, after)) != set(self.needs(obj, record))
        times = [at for at in (plan.requeue_at, now if is_other else None) if at is not None]
        deleting = obj.metadata.deletion_timestamp is not None
        events = (*plan.events, *_join_events(before.machine, plan.record, gathered))
        released = deleting and plan.released
        return Decision(status, actions, events, requeue_at=min(times, default=None), released=released)

    def _view(self, record: InstanceRecord) -> View | None:
        return machine_view(Gce(), record.machine, machine_settings(self.settings))

    def _gather(self, obj: ProvisionedInstance, record: InstanceRecord, inputs: Inputs) -> "_Gathered":
        """Look at everything that the ProvisionedInstance names."""
        named: KubernetesObject | None = inputs.get(template_ref(obj))
        template = named if isinstance(named, SpotInstanceVM | InstanceTemplate) else None
        checked = read.check_template(obj, template)
        usable = template if checked.ready else None
        credentials = credentials_of(obj)
        where = credentials.namespace or obj.metadata.namespace
        secret = inputs.view(secret_view(credentials))
        join_secret = read.join_secret_of(usable) if usable is not None else ""
        plan, join, join_state = None, Checked(), ViewState()
        if usable is not None and join_secret == record.join_secret:
            join_state = inputs.view(secret_view(SecretRef(join_secret)))
            plan = read.join_plan(join_secret, usable)
            name = f"{obj.metadata.namespace}/{join_secret}"
            join = read.check_join(name, plan, join_state)
            if join.ready and self._is_token_refused(obj, plan, join_state):
                text = f'secret {name}: token "{AUTO}" is not allowed in namespace {obj.metadata.namespace}'
                join = Checked(False, reasons.TOKEN_NOT_ALLOWED, text)
        view = self._view(record)
        return _Gathered(
            template=checked,
            usable=usable,
            credentials=read.check_credentials(f"{where}/{credentials.name}", secret),
            secret=secret,
            join_secret=join_secret,
            plan=plan,
            join=join,
            join_state=join_state,
            zone=inputs.view(view) if view else ViewState(),
            node=_find_node(obj, record.machine, inputs),
            job=_owned_by(obj, inputs),
        )

    def _is_token_refused(self, obj: ProvisionedInstance, plan: JoinPlan, state: ViewState) -> bool:
        """Return True if machines of this namespace may not get bootstrap tokens.

        Who may have such a token made can let any machine join the cluster, so an administrator allows it.
        """
        values = join_values(plan, read.content(state) or {})
        allowed = {name.strip() for name in self.settings.bootstrap_token_namespaces.split(",")}
        return values[TOKEN] == AUTO and allowed.isdisjoint({"*", obj.metadata.namespace})

    def _facts(
        self,
        obj: ProvisionedInstance,
        record: InstanceRecord,
        gathered: "_Gathered",
        inputs: Inputs,
        now: datetime,
    ) -> MachineFacts:
        meta, machine = obj.metadata, record.machine
        spec = read.machine_spec(gathered.usable) if gathered.usable is not None else None
        matching = _siblings(obj, record)
        siblings = inputs.all(matching) if matching is not None else ()
        rates = recorded_rates(gathered.job or _pool_of(obj, record, inputs))
        cluster = inputs.view(CLUSTER_VIEW).value
        uid = cluster.uid if isinstance(cluster, ClusterIdentity) else ""
        can_buy = bool(gathered.credentials.ready and gathered.join.ready and uid)
        plan = gathered.plan
        values = join_values(plan, read.content(gathered.join_state) or {}) if plan else {}
        name = machine.name or names.machine_name(meta.name)
        named = inputs.get(Ref(Node, name))
        node, pods = gathered.node, None
        if node is not None and machine.state is MachineState.JOINED:
            value = inputs.view(_pods_view(machine)).value
            pods = value if isinstance(value, NodePods) else None
        return MachineFacts(
            name=name,
            namespace=meta.namespace,
            identity=Identity(meta.uid, uid, _labels(obj)),
            now=now,
            spec=spec if can_buy else None,
            join=plan if can_buy else None,
            own_token=values.get(TOKEN) == AUTO,
            secrets={JOIN_ROLE: SecretRef(record.join_secret)} if record.join_secret else {},
            credentials=credentials_of(obj),
            has_credentials=gathered.credentials.ready is not False,
            inputs_digest=read.digest_of(
                spec.digest if spec else "", read.content(gathered.secret) or {}, values, meta.generation
            ),
            results=inputs.call_results,
            zone=gathered.zone,
            node=read.node_facts(node, pods) if node is not None else None,
            name_taken_by="" if machine.exists else read.taken_by(obj, named, inputs.all(_namesakes(obj))),
            announcement=read.announcement(node, self.rules) if node is not None else None,
            needs_gpus=read.needed_gpus(gathered.usable, gathered.job),
            policy=zone_policy(obj, gathered.job, siblings, rates, spec.digest if spec else "", now),
            offers=self._offers(spec),
            on_demand_after=buying_rules(obj, gathered.job).on_demand_fallback_after,
            deleting=meta.deletion_timestamp is not None,
            abandon=meta.annotations.get(FORCE_DELETE) == "true",
        )

    def _offers(self, spec: MachineSpec | None) -> Mapping[str, Prices]:
        if spec is None:
            return {}
        gpu = spec.gpu
        return self.catalog.offers(spec.machine_type, gpu.type if gpu else "", gpu.count if gpu else 0)


class _Gathered(Struct, frozen=True, kw_only=True):
    """What a ProvisionedInstance depends on, as it is now."""

    template: Checked
    usable: Template | None
    credentials: Checked
    secret: ViewState
    join_secret: str
    plan: JoinPlan | None
    join: Checked
    join_state: ViewState
    zone: ViewState
    node: Node | None
    job: SpotInstanceJob | None


def machine_settings(settings: SpotSettings) -> MachineSettings:
    """Return what an administrator has set for VMs."""
    return MachineSettings(
        join_timeout=settings.join_timeout,
        max_join_attempts=settings.max_join_attempts,
        pods_ready_grace=settings.pods_ready_grace,
        poll_seconds=settings.instance_poll,
        lease_loss_timeout=settings.lease_loss_timeout,
        zone_cooldown=settings.zone_cooldown,
        quota_cooldown=settings.quota_cooldown,
        no_capacity_backoff=settings.no_capacity_backoff,
        max_no_capacity_backoff=10 * settings.no_capacity_backoff,
    )


def template_ref(obj: ProvisionedInstance) -> Ref[SpotInstanceVM] | Ref[InstanceTemplate]:
    """Return the template of a ProvisionedInstance."""
    spec = obj.spec
    namespace = spec.instance_template_namespace or obj.metadata.namespace
    if spec.instance_template_kind == SpotInstanceVM.resource.kind:
        return Ref(SpotInstanceVM, spec.instance_template_name, namespace)
    return Ref(InstanceTemplate, spec.instance_template_name, namespace)


def credentials_of(obj: ProvisionedInstance) -> SecretRef:
    ref = obj.spec.gcp_credentials_secret_ref
    return SecretRef(ref.name, ref.namespace)


def instances_by_job(obj: KubernetesObject) -> Iterable[str]:
    """Index of ProvisionedInstances by their job, or by the pool that owns them."""
    if not isinstance(obj, ProvisionedInstance):
        return ()
    ref = obj.spec.spot_instance_job_ref or obj.metadata.controller
    return (f"{obj.metadata.namespace}/{ref.uid}",) if ref is not None and ref.uid else ()


def instances_by_machine(obj: KubernetesObject) -> Iterable[str]:
    """Index of ProvisionedInstances by the name of their VM."""
    return (names.machine_name(obj.metadata.name),) if isinstance(obj, ProvisionedInstance) else ()


def instances_by_template(obj: KubernetesObject) -> Iterable[str]:
    """Index of ProvisionedInstances by their template."""
    if not isinstance(obj, ProvisionedInstance):
        return ()
    ref = template_ref(obj)
    return (f"{ref.kind.resource.kind}/{ref.namespace}/{ref.name}",)


def nodes_by_provider_id(obj: KubernetesObject) -> Iterable[str]:
    """Index of Nodes by what their cloud calls them."""
    return (obj.spec.provider_id,) if isinstance(obj, Node) and obj.spec.provider_id else ()


def _job_ref(obj: ProvisionedInstance) -> Ref[SpotInstanceJob] | None:
    ref = obj.spec.spot_instance_job_ref
    if ref is None or ref.kind != SpotInstanceJob.resource.kind:
        return None
    return Ref(SpotInstanceJob, ref.name, obj.metadata.namespace)


def _siblings(obj: ProvisionedInstance, record: InstanceRecord) -> Matching[ProvisionedInstance] | None:
    """Return the VMs of the same job while they matter: each change of one reconciles this one."""
    value = next(iter(instances_by_job(obj)), "")
    return Matching(ProvisionedInstance, JOB_INDEX, value) if value and is_choosing(record.machine) else None


def _pool_ref(obj: ProvisionedInstance, record: InstanceRecord) -> Ref[MachinePool] | None:
    """Return the pool of a VM while it matters where others of the pool were preempted."""
    owner, kind = obj.metadata.controller, MachinePool.resource
    is_pool = owner is not None and (owner.api_version, owner.kind) == (kind.api_version, kind.kind)
    if owner is None or not is_pool or not is_choosing(record.machine):
        return None
    return Ref(MachinePool, owner.name, obj.metadata.namespace)


def _pool_of(obj: ProvisionedInstance, record: InstanceRecord, inputs: Inputs) -> MachinePool | None:
    ref, owner = _pool_ref(obj, record), obj.metadata.controller
    pool = inputs.get(ref) if ref is not None else None
    return pool if pool is not None and owner is not None and pool.metadata.uid == owner.uid else None


def _namesakes(obj: ProvisionedInstance) -> Matching[ProvisionedInstance]:
    return Matching(ProvisionedInstance, MACHINE_INDEX, names.machine_name(obj.metadata.name))


def _pods_view(machine: MachineRecord) -> View:
    return View(NODE_PODS, machine.node, 5.0)


def _owned_by(obj: ProvisionedInstance, inputs: Inputs) -> SpotInstanceJob | None:
    """Return the job of the ProvisionedInstance, if it is the very one."""
    ref, spec = _job_ref(obj), obj.spec.spot_instance_job_ref
    job = inputs.get(ref) if ref is not None else None
    return job if job is not None and spec is not None and job.metadata.uid == spec.uid else None


def _find_node(obj: ProvisionedInstance, machine: MachineRecord, inputs: Inputs) -> Node | None:
    candidates: list[Node] = []
    if machine.zone:
        candidates += inputs.all(Matching(Node, PROVIDER_INDEX, read.provider_id(machine)))
    named = inputs.get(Ref(Node, machine.name or names.machine_name(obj.metadata.name)))
    candidates += [named] if named is not None else []
    return read.node_of_machine(candidates, machine)


def _labels(obj: ProvisionedInstance) -> dict[str, str]:
    own = obj.metadata.labels
    return {"spot-instance-job": own.get(JOB_LABEL, ""), "replica": own.get(REPLICA_LABEL, "")}


def _seen(record: MachineRecord, before: InstanceRecord, zone: ViewState) -> ObservedMachine | None:
    """Return the machine as the view shows it, if the view is of its zone."""
    same = (record.project, record.zone) == (before.machine.project, before.machine.zone)
    if not same or not isinstance(zone.value, ZoneState):
        return None
    return zone.value.machines.get(record.name)


def _is_withdrawn(before: MachineRecord, after: MachineRecord) -> bool:
    """Return True if a notice of the same machine is taken back now."""
    return before.notice is not None and after.notice is None and before.attempt == after.attempt


def _join_events(before: MachineRecord, after: MachineRecord, gathered: _Gathered) -> Iterator[EmitEvent]:
    """Tell once for each request that the Secret overrules the template."""
    if after.attempt == before.attempt or gathered.plan is None:
        return
    if differing := read.join_mismatch(gathered.plan, gathered.join_state):
        text = f"secret {gathered.join_secret} and the template differ in {differing}; the Secret is used"
        yield event(reasons.JOIN_CONFIG_MISMATCH, text, warning=True)
