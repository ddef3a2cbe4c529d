"""Drives a simulated TrainingJob by random faults and requests, and checks that it comes to rest."""

import random
from datetime import datetime

from msgspec.structs import replace

from argosy.kinds.scalers import ScaleIn
from argosy.kinds.trainingjob import TrainingJobStatus
from argosy.plan.actions import Exec, ExecResult, ExecStatus
from argosy.workload.declared_scale import is_declared
from argosy.workload.record import Record
from argosy.workload.record_encoding import decode
from argosy.workload.release import is_release
from tests.support.et_executor import Memory
from tests.support.et_simulator import LAUNCHER, EtSimulator, done, worker

FINISHED = ("Succeeded", "Failed")


class RandomJob:
    """One job to which something random happens in every step."""

    def __init__(self, seed: int, changes: dict[str, object]) -> None:
        self.random = random.Random(seed)  # no secret
        self.job = EtSimulator({"worker.replicas": 3, **changes}, self._answer)
        self.log: list[str] = []
        self._scalers = 0
        self._healed = False
        self._begun: dict[str, datetime] = {}
        """When each scaler was begun, by uid."""
        self._ordered: dict[str, int] = {}
        """The order to save a checkpoint of each operation, by its id."""

    def step(self) -> None:
        """Let something happen, and the operator react to it."""
        happening = self.random.choice(
            (
                self._fail_worker,
                self._delete_worker,
                self._hold_pods,
                self._release_pods,
                self._scale_out,
                self._scale_in,
                self._declare,
                self._delete_scaler,
                self._kill_operator,
                self._lose_node,
                self._announce_node,
                self._end_launcher,
                self._suspend,
                self._lose_status,
                self._nothing,
                self._nothing,
            )
        )
        happening()
        self.job.saves = self.random.random() < 0.5
        for _ in range(self.random.randint(1, 4)):
            seconds, late = self.random.choice((1, 1, 7)), self.random.random() < 0.3
            self.job.run(1, seconds=seconds, scalers=not late)
            self._acknowledge()
            self._check_operations()

    def settle(self) -> None:
        """Heal everything, and wait until nothing happens any more."""
        self._healed = True
        self._release_pods()
        self.job.cluster.nodes_down = frozenset()
        self.job.cluster.announced.clear()
        self.job.edit({"suspend": False})
        for _ in range(60):
            written = len(self.job.steps)
            for _ in range(5):
                self.job.run(1, seconds=150)
                self._acknowledge()
            if len(self.job.steps) == written:
                return
        raise AssertionError(f"it does not come to rest: {self.job.steps[-10:]}")

    def check(self) -> None:
        """Check a job that has come to rest."""
        job, workers = self.job, self.job.record.role("worker")
        phases = {name: scaler.status.phase for name, scaler in job.scalers.items()}
        assert "Scaling" not in phases.values(), phases
        assert job.status.current_scaler == ""
        if job.status.phase == "Created":
            assert workers.retired & workers.members, "only a lost worker that is not replaced holds it back"
            return
        assert "" not in phases.values(), phases
        if job.status.phase in FINISHED:
            return
        assert job.status.phase == "Running", job.status
        assert LAUNCHER in job.pods
        assert job.record.operation is None
        assert not workers.joining
        assert not workers.draining
        running = [pod.index for pod in job.pods.values() if pod.role == "worker" and pod.phase == "Running"]
        assert sorted(running) == list(workers.members - workers.retired)
        if running:
            assert sorted(running) == list(workers.listed)
        names = [worker(index) for index in workers.members]
        assert job.cluster.names("Service") == sorted(names)
        assert job.status.target_workers == names

    def _check_operations(self) -> None:
        """Check that no scaler is begun again; declared numbers and releases may be. Each has one order."""
        record = decode(self.job.status.argosy) or Record()
        for operation in record.operations:
            if operation.epoch and not is_declared(operation):
                epoch = self._ordered.setdefault(operation.id, operation.epoch)
                assert epoch == operation.epoch, f"a checkpoint was ordered twice: {operation}"
            if is_declared(operation) or is_release(operation):
                continue
            begun = self._begun.setdefault(operation.id, operation.started_at)
            assert begun == operation.started_at, f"executed twice: {operation}"

    def _worker(self) -> str | None:
        names = self.job.cluster.workers()
        return self.random.choice(names) if names else None

    def _fail_worker(self) -> None:
        if name := self._worker():
            code = self.random.choice((1, 137, None))
            self.job.cluster.fail(name, code, reason="" if code else "Evicted")
            self._note(f"fail {name}")

    def _delete_worker(self) -> None:
        if name := self._worker():
            self.job.cluster.delete(name)
            self._note(f"delete {name}")

    def _hold_pods(self) -> None:
        index = self.random.randint(0, 8)
        self.job.cluster.pending.add(worker(index))
        self.job.cluster.stuck.add(worker(self.random.randint(0, 8)))
        self._note(f"hold {index}")

    def _release_pods(self) -> None:
        self.job.cluster.pending.clear()
        self.job.cluster.stuck.clear()
        self._note("release")

    def _scale_out(self) -> None:
        self._scalers += 1
        count = self.random.randint(1, 3)
        self.job.scale_out(f"out-{self._scalers}", toAdd={"count": count}, timeout=30)
        self._note(f"scale out {count}")

    def _scale_in(self) -> None:
        self._scalers += 1
        name, chosen = f"in-{self._scalers}", self._worker()
        by_name = chosen is not None and self.random.random() < 0.5
        selection = {"podNames": [chosen]} if by_name else {"count": 1}
        self.job.scale_in(name, toDelete=selection, timeout=30)
        assert isinstance(self.job.scalers[name], ScaleIn)
        self._note(f"scale in {selection}")

    def _declare(self) -> None:
        replicas = self.random.randint(1, 5)
        self.job.edit({"worker.replicas": replicas})
        self._note(f"replicas {replicas}")

    def _delete_scaler(self) -> None:
        if self.job.scalers:
            name = self.random.choice(sorted(self.job.scalers))
            del self.job.scalers[name]
            self._note(f"delete {name}")

    def _kill_operator(self) -> None:
        self.job.stop_at = len(self.job.steps) + self.random.randint(1, 6)
        self.job.executor.memory = Memory()
        self._note("kill")

    def _lose_node(self) -> None:
        down = self.random.random() < 0.5
        self.job.cluster.node_of = lambda name: f"node-{len(name) % 2}{name[-1]}"
        self.job.cluster.nodes_down = (
            frozenset({f"node-{self.random.randint(0, 1)}1"}) if down else frozenset()
        )
        self._note(f"node {down}")

    def _announce_node(self) -> None:
        if name := self._worker():
            node, seconds = self.job.pods[name].node, self.random.randint(10, 120)
            self.job.cluster.announce(node, seconds)
            self._note(f"{node} ends in {seconds} s")

    def _end_launcher(self) -> None:
        if LAUNCHER in self.job.pods and self.random.random() < 0.15:
            end = self.random.choice((self.job.cluster.fail, self.job.cluster.delete))
            end(LAUNCHER)
            self._note(f"{end.__name__} launcher")

    def _suspend(self) -> None:
        suspended = self.random.random() < 0.2
        self.job.edit({"suspend": suspended})
        self._note(f"suspend {suspended}")

    def _lose_status(self) -> None:
        """Remove the status of the job, and with it the Record, now and then."""
        if self.random.random() < 0.2:
            self.job.job = replace(self.job.job, status=TrainingJobStatus())
            self.job.version += 1
            self._begun.clear()
            self._ordered.clear()
            self._note("lose the status")

    def _answer(self, call: Exec) -> ExecResult | None:
        """Answer a call into a pod; unless all is well, some fail, are lost, or find processes."""
        chance = 1.0 if self._healed else self.random.random()
        if chance < 0.1:
            return None
        if chance < 0.2:
            return ExecResult(call.key, ExecStatus.NOT_REACHABLE)
        if chance < 0.3:
            return done(call, 1)
        is_drain = call.key.startswith("drain/")
        return done(call, stdout=call.command[-1].encode() if is_drain and chance < 0.6 else b"")

    def _acknowledge(self) -> None:
        """Acknowledge the host list, as the sidecar of the launcher does; unless all is well, not always."""
        record, launcher = decode(self.job.status.argosy), self.job.pods.get(LAUNCHER)
        if record is None or launcher is None or launcher.phase != "Running":
            return
        if self._healed or self.random.random() < 0.8:
            self.job.cluster.change(LAUNCHER, hosts_ack=record.role("worker").listed_etag)

    def _nothing(self) -> None:
        self._note("nothing")

    def _note(self, what: str) -> None:
        self.log.append(f"{self.job.now:%H:%M:%S} {what}")
