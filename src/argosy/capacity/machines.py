"""Decides about one machine: Wanted, Requested, Running, Joined, Ready, Lost, Deleting, Deleted, Failed.

`decide` is called with the stored Record and everything that is known, and returns the next Record and the
calls to make. The Record is stored before a call is made, each call may be made twice, and a machine is
deleted from recorded values alone. So whatever is killed, and whenever: no machine exists that no Record
names, and each is deleted once nobody wants it.
"""

from datetime import timedelta

from msgspec import Struct
from msgspec.structs import replace

from argosy.capacity import reasons
from argosy.capacity.creation import ExistingMachine, create, reopen, request
from argosy.capacity.machine_plan import Context, MachineFacts, MachinePlan, event
from argosy.capacity.machine_record import MachineRecord, MachineState
from argosy.capacity.provider import Provider
from argosy.capacity.removal import begin_removal_after_timeout, release, remove
from argosy.capacity.running import LOST, improve_cause, settle_token, watch
from argosy.capacity.settings import MachineSettings


class Machines(Struct, frozen=True):
    """Decides about machines of one provider."""

    provider: Provider
    settings: MachineSettings = MachineSettings()

    def decide(self, record: MachineRecord | None, facts: MachineFacts) -> MachinePlan:
        """Return the next Record, and the calls that follow from it."""
        context = Context(facts, self.provider, self.settings)
        current = _with_node(_with_credentials(record or MachineRecord(), facts), facts)
        plan = self._decide(current, context)
        if plan.record.exists or not plan.record.token_id or plan.calls:
            return plan
        if plan.record.state not in (MachineState.DELETED, MachineState.FAILED):
            return plan
        settled = settle_token(plan.record, context)
        return replace(settled, events=(*plan.events, *settled.events))

    def _decide(self, record: MachineRecord, context: Context) -> MachinePlan:
        if context.facts.deleting:
            return release(record, context)
        match record.state:
            case MachineState.WANTED:
                return request(record, context)
            case MachineState.REQUESTED:
                return self._create(record, context)
            case MachineState.FAILED:
                return reopen(record, context)
            case MachineState.DELETING:
                return remove(
                    improve_cause(record, context) if record.deletion_reason == LOST else record, context
                )
            case MachineState.DELETED:
                return context.plan(improve_cause(record, context))
            case _:
                return watch(record, context)

    def _create(self, record: MachineRecord, context: Context) -> MachinePlan:
        outcome = create(record, context)
        if isinstance(outcome, ExistingMachine):
            running = replace(outcome.record, state=MachineState.RUNNING, tries=0, retry_at=None)
            plan = watch(running, context)
            if not outcome.adopted:
                return plan
            adopted = event(reasons.INSTANCE_ADOPTED, f"{record.name} exists already in {record.zone}")
            return replace(plan, events=(adopted, *plan.events))
        assert record.requested_at is not None
        deadline = record.requested_at + timedelta(seconds=self.settings.join_timeout)
        if outcome.record.sent and outcome.record.state is MachineState.REQUESTED and context.now >= deadline:
            progress = f"{record.name} in {record.zone}: never RUNNING; {record.message}"
            return begin_removal_after_timeout(record, context, progress)
        return outcome


def _with_credentials(record: MachineRecord, facts: MachineFacts) -> MachineRecord:
    """Return the Record with the credentials of the object, which may have been changed."""
    if facts.credentials is None or record.credentials in (None, facts.credentials):
        return record
    return replace(record, credentials=facts.credentials)


def _with_node(record: MachineRecord, facts: MachineFacts) -> MachineRecord:
    """Return the Record with a Node that joined while the machine was deleted, so that it goes too."""
    is_ending = facts.deleting or record.state in (MachineState.DELETING, MachineState.LOST)
    if not is_ending or not record.exists or facts.node is None:
        return record
    return replace(record, node=facts.node.name, node_uid=facts.node.uid)
