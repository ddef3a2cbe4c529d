"""1,000 VMs in virtual time: the longest reconcile, and the VMs that are left at the end.

The real reconciler and driver run against the rehearsal cloud in this process, with the garbage collector as
an operator sets it. Zones run out, a tenth of the VMs is preempted and replaced, the operator is killed now
and then, and in the end everything is deleted. The bound of a reconcile is a bare pass right after it, which
reads and writes the object as JSON. Both are CPU time, since a reconcile waits for nothing.
"""

import asyncio
import contextlib
import gc
import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from statistics import median

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from argosy.dialects.spot.settings import SpotSettings
from argosy.engine.gc_tuning import FREEZE_SECONDS, collect_and_freeze
from argosy.engine.objects import Key
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.spot import REPLICA_LABEL, SpotInstanceJob
from argosy.kinds.spot_machines import JobReference, ProvisionedInstance
from argosy.local.gce.cloud import Latency
from argosy.plan.contract import Decision
from bench.figures import Figure
from tests.support.machine_simulator import World
from tests.support.spot_instances import NAMESPACE, seed_template
from tests.support.spot_jobs import spot_job

REPLICAS = 8
"""VMs of one job."""
ZONES = ("us-central1-a", "us-central1-b", "us-central1-c")
STEP_SECONDS = 5.0
BOUND_IS = "reading and writing the object as JSON, right after each reconcile"


class Sizes(Struct, frozen=True):
    machines: int = 1000
    requests_per_kill: int = 2000
    """Requests of the operator, writes of statuses included, until it is killed."""


def measure() -> Iterator[Figure]:
    yield from measure_with(Sizes())


def measure_with(sizes: Sizes) -> Iterator[Figure]:
    life = Life(sizes)
    asyncio.run(life.run())
    reconciles, passes = life.world.reconcile_seconds, life.passes.seconds
    bound_is = f"{BOUND_IS}; the longest of {len(passes)}"
    yield Figure("machines_reconcile_max_ms", max(reconciles) * 1e3, "ms", max(passes) * 1e3, bound_is, 50.0)
    yield Figure(
        "machines_reconcile_p50_ms", median(reconciles) * 1e3, "ms", median(passes) * 1e3, BOUND_IS, None
    )
    bound_is = f"of {len(life.world.cloud.ever)} VMs, with {life.kills} kills"
    yield Figure("machines_leaked", life.leaked(), "", 0, bound_is, 0)


class Life:
    """All machines from their creation to their deletion."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self._chance = random.Random(20)
        self.passes = BarePasses()
        self.kills = 0
        latency = Latency(insert=4, boot=10, delete=4, notice=30)
        settings = SpotSettings(bootstrap_token_namespaces="*", zone_cooldown=60)
        self.world = World(settings=settings, latency=latency, timer=time.thread_time, observer=self.passes)
        content = self.world.secrets["kubeadm-join-token"]
        own_tokens = type(content)({**content.data, "token": b"auto"})
        self.world.secrets["kubeadm-join-token"] = own_tokens
        self.world.templates["vm"] = seed_template(gcp={"fallback_zones": list(ZONES[1:])})
        self.world.cloud.capacity.update(dict.fromkeys(ZONES, -(-sizes.machines * 2 // 5)))
        self._frozen_at = self.world.now

    async def run(self) -> None:
        with _operator_collector(), _quiet():
            await self._run()

    async def _run(self) -> None:
        world = self.world
        names = [self._create(number) for number in range(self._sizes.machines)]
        collect_and_freeze()
        await self._until(lambda: all(map(world.is_ready, names)), "all machines are ready")
        lost = self._chance.sample(names, max(len(names) // 10, 1))
        for name in lost:
            status = world.status(name)
            world.cloud.preempt(status.project, status.zone, status.instance_name)
        is_lost = lambda: all(world.status(name).state == "TERMINATED" for name in lost)  # noqa: E731
        await self._until(is_lost, "preempted machines are gone")
        for name in lost:
            world.delete(name)
        names = [name for name in names if name not in lost]
        names += [self._create(len(names) + len(lost) + number) for number in range(len(lost))]
        await self._until(lambda: all(map(world.is_ready, names)), "their replacements are ready")
        for name in names:
            world.delete(name)
        await self._until(lambda: not world.objects, "everything is deleted")
        await world.run(120, step=STEP_SECONDS)

    def leaked(self) -> int:
        """Return what is left: VMs, Nodes and tokens; and VMs that no Record had named at their creation."""
        world = self.world
        left: Iterable[object] = (*world.machines(), *world.nodes, *world.tokens)
        unnamed = {(zone, name) for _, zone, name in world.cloud.ever} - world.names
        return len(tuple(left)) + len(unnamed) + len(world.gate.violations)

    def _create(self, number: int) -> str:
        job = f"train-{number // REPLICAS}"
        if job not in self.world.jobs:
            meta = ObjectMeta(name=job, namespace=NAMESPACE, uid=f"uid-{job}")
            self.world.jobs[job] = replace(msgspec.convert(spot_job(job), SpotInstanceJob), metadata=meta)
        resource = SpotInstanceJob.resource
        ref = JobReference(resource.api_version, resource.kind, job, f"uid-{job}")
        obj = self.world.create(f"vm-{number}", spot_instance_job_ref=ref)
        labelled = replace(obj.metadata, labels={REPLICA_LABEL: str(number % REPLICAS)})
        self.world.objects[obj.metadata.name] = replace(obj, metadata=labelled)
        return obj.metadata.name

    async def _until(self, condition: Callable[[], bool], description: str) -> None:
        world = self.world
        end = world.now + timedelta(hours=2)
        while not condition():
            if world.now > end:
                raise TimeoutError(f"timeout: {description}")
            if not world.kill_at:
                self.kills += 1
                requests = self._sizes.requests_per_kill
                world.kill_at = world.requests + self._chance.randint(requests // 2, requests * 3 // 2)
                world.answered = not world.answered
            await world.run(STEP_SECONDS, step=STEP_SECONDS)
            if not world.kill_at:
                # Another process: it begins without the garbage of the one before.
                collect_and_freeze(include_frozen=True)
            if world.now - self._frozen_at >= timedelta(seconds=FREEZE_SECONDS):
                collect_and_freeze()
                self._frozen_at = world.now


class BarePasses:
    """Reads and writes each object that was reconciled."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def decided(self, obj: ProvisionedInstance, decision: Decision) -> None:
        start = time.thread_time()
        msgspec.json.decode(msgspec.json.encode(obj), type=ProvisionedInstance)
        self.seconds.append(time.thread_time() - start)

    def forget(self, key: Key) -> None: ...
    def clear(self) -> None: ...


@contextlib.contextmanager
def _operator_collector() -> Iterator[None]:
    """Set the garbage collector as an operator does, and back again."""
    thresholds = gc.get_threshold()
    collect_and_freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Log nothing: what is refused is reported in thousands of lines."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
