"""Decides which replicas are in the host list that a launcher reads.

The list is part of the Record (`RoleRecord.listed`): the ConfigMap, the endpoint that the launcher's sidecar
asks, and the status all show the recorded list. What elastic frameworks do not survive decides its rules:

- A replica is listed only when its pod runs, a command was seen to run in it and the launcher may reach it. A
  listed host that does not answer ends the whole training.
- A lost replica leaves the list at once. Additions wait until the last change was taken up.
- The list is never empty while the launcher runs: the last one is kept.

The sidecar of the launcher writes the list to its files and acknowledges it. If that takes too long, a
command writes them instead, and is repeated ever more rarely until it succeeds or the sidecar answers.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from argosy.plan.actions import Exec, ExecStatus
from argosy.workload import messages, reasons
from argosy.workload.children import is_account_current
from argosy.workload.current_pods import current_pods
from argosy.workload.host_file_script import write_call
from argosy.workload.host_files import HostFiles, render_host_files
from argosy.workload.host_list import HostList
from argosy.workload.index_set import EMPTY, IndexSet
from argosy.workload.launchers import has_launcher, launcher_pod, usable_indexes
from argosy.workload.model import Workload
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.record import Record, RoleRecord

SETTLE_SECONDS = 5.0
"""Seconds after a change of the list in which only lost replicas change it, so that the launcher takes up one
change at a time."""
MAX_CHECKS = 24
"""Checks in one plan of a job, fewer than the commands that the operator accepts for one job."""
CHECK_RETRY_SECONDS = 2.0
"""Seconds until a pod that could not be attached is tried again."""
ACK_SECONDS = 2.0
"""Seconds that the sidecar of the launcher has to write the files and to acknowledge them."""
ACK_SECONDS_IN_BURST = 4.0
"""The same while many jobs of the namespace change: commands would delay the acknowledgements further. A list
must reach the launcher within five seconds all the same."""
WRITE_SECONDS = 5.0
"""Seconds after which a command that writes the files is repeated; doubled up to MAX_WRITE_SECONDS."""
MAX_WRITE_SECONDS = 60.0


class HostListPlan(Struct, frozen=True):
    record: Record
    calls: tuple[Exec, ...] = ()
    """Commands that write the files of the launcher, and that show whether a pod can be attached."""
    requeue_at: datetime | None = None

    def with_requeue_at(self, time: datetime) -> "HostListPlan":
        """Return the plan with the earlier of its own time and this one."""
        return replace(self, requeue_at=min(self.requeue_at or time, time))


def update_host_list(workload: Workload, record: Record, observed: Observed, now: datetime) -> HostListPlan:
    """Return the record with the current host list, the checks that additions wait for, and the command that
    writes the files if the launcher's sidecar does not."""
    rule = workload.rules.host_list
    if rule is None or record.finished_at:
        return HostListPlan(record)
    plan = _update_list(workload, rule, record, observed, now)
    files = render_host_files(workload, plan.record)
    if files is None:
        return plan
    last = plan.record.role(rule.role)
    if files.digest != last.listed_digest:
        # Also if the list is the same: the number of slots or a text may have changed.
        last = replace(last.with_listed(last.listed, now), listed_digest=files.digest)
        files = replace(files, version=last.listed_version)
        plan = replace(plan, record=plan.record.with_role(rule.role, last))
    return _write_if_not_acknowledged(rule, plan, files, observed, now)


def _update_list(
    workload: Workload, rule: HostList, record: Record, observed: Observed, now: datetime
) -> HostListPlan:
    last = record.role(rule.role)
    usable = usable_indexes(workload, rule, record, observed)
    proven = proven_indexes(rule, record, observed) & usable
    unknown = usable - last.draining - last.listed - proven
    checks = tuple(islice(_checks(rule, record, observed, unknown), MAX_CHECKS))
    attachable = attachable_indexes(workload, rule, record, observed)
    if not last.listed and has_launcher(record, rule):
        attachable = usable  # the Record was lost: what runs was listed, and the launcher may use it
    kept = last.listed & (usable - last.draining)
    added = (usable & attachable & last.members) - last.draining - last.listed
    if last.listed_since is None and launcher_pod(record, rule, observed):
        added = (usable & last.members) - last.draining  # the Record was lost: the launcher uses them already
    held = held_until(record, rule)
    # Also without a check: one that has failed is left out of this plan, and is in the next.
    requeue_at = now + timedelta(seconds=CHECK_RETRY_SECONDS) if unknown else None
    listed = kept | added
    if added and kept == last.listed and held and now < held:
        listed = last.listed
        requeue_at = min(held, requeue_at) if requeue_at else held
    if not listed and has_launcher(record, rule):
        listed = last.listed
    changed = last if listed == last.listed else last.with_listed(listed, now)
    changed = replace(changed, attachable=proven - listed)
    return HostListPlan(record.with_role(rule.role, changed), checks, requeue_at)


def held_until(record: Record, rule: HostList) -> datetime | None:
    """Return until when the launcher takes up the last change of the list; None if nobody reads it yet."""
    since = record.role(rule.role).listed_since
    if since is None or not has_launcher(record, rule):
        return None
    return since + timedelta(seconds=SETTLE_SECONDS)


def _write_if_not_acknowledged(
    rule: HostList, plan: HostListPlan, files: HostFiles, observed: Observed, now: datetime
) -> HostListPlan:
    """Return the plan with a command that writes the files, once the sidecar is late."""
    record, last = plan.record, plan.record.role(rule.role)
    launcher = _launcher_without_files(rule, record, observed)
    if launcher is None:
        return plan
    since = _expected_since(record, rule, launcher) or now
    number, next_at = _try_number(since + _ack_time(observed), now)
    if number is None:
        return plan.with_requeue_at(next_at)
    key = f"hosts/{launcher.uid}/{last.listed_etag}/{number}"
    result = observed.exec_results.get(key)
    if result is not None and result.status is ExecStatus.DONE and result.exit_code == 0:
        written = replace(last, listed_by_exec=_written_key(last, launcher))
        return replace(plan, record=record.with_role(rule.role, written), requeue_at=now)
    if number and not _was_reported(record, since):
        message = messages.host_list_not_written(launcher.name, len(last.listed))
        record = record.with_history(now, reasons.HOST_LIST_NOT_WRITTEN, message)
    call = write_call(key, files, launcher, rule.launcher_container)
    return replace(plan, record=record, calls=(call, *plan.calls)).with_requeue_at(next_at)


def wait_for_files_until(
    rule: HostList, record: Record, observed: Observed, now: datetime
) -> datetime | None:
    """Return until when to wait for the launcher to have the current list in its files.

    None if it has, if it does not run, or if neither its sidecar nor a command has written them in time.
    """
    launcher = _launcher_without_files(rule, record, observed)
    if launcher is None:
        return None
    since = _expected_since(record, rule, launcher) or now
    until = since + _ack_time(observed) + timedelta(seconds=WRITE_SECONDS)
    return until if now < until else None


def _launcher_without_files(rule: HostList, record: Record, observed: Observed) -> ObservedPod | None:
    """Return the launcher, if it runs and is not known to have the current list in its files."""
    launcher, last = launcher_pod(record, rule, observed), record.role(rule.role)
    if launcher is None or launcher.hosts_ack == last.listed_etag:
        return None
    return launcher if last.listed_by_exec != _written_key(last, launcher) else None


def _written_key(last: RoleRecord, launcher: ObservedPod) -> str:
    return f"{launcher.uid}/{last.listed_etag}"


def _was_reported(record: Record, since: datetime) -> bool:
    return any(
        entry.reason == reasons.HOST_LIST_NOT_WRITTEN and entry.at >= since for entry in record.history
    )


def _expected_since(record: Record, rule: HostList, launcher: ObservedPod) -> datetime | None:
    """Return since when the sidecar could have written the files."""
    times = (record.role(rule.role).listed_since, record.role(rule.launcher).phase_since, launcher.created)
    return max((time for time in times if time is not None), default=None)


def _ack_time(observed: Observed) -> timedelta:
    return timedelta(seconds=ACK_SECONDS_IN_BURST if observed.in_burst else ACK_SECONDS)


def _try_number(start: datetime, now: datetime) -> tuple[int | None, datetime]:
    """Return the number of the command that runs now, None if it is not time yet, and when the next is due.

    It follows from the time alone, so that nothing has to be recorded while commands fail.
    """
    wait, longest = WRITE_SECONDS, MAX_WRITE_SECONDS
    if now < start:
        return None, start
    number, passed = 0, (now - start).total_seconds()
    while passed >= wait and wait < longest:
        number, passed, wait = number + 1, passed - wait, min(wait * 2, longest)
    number, passed = number + int(passed // wait), passed % wait
    return number, now + timedelta(seconds=wait - passed)


def proven_indexes(rule: HostList, record: Record, observed: Observed) -> IndexSet:
    """Return the replicas in whose pods a command was seen to run, and that are not listed yet."""
    pods = current_pods(record, rule.role, observed)
    answers = (pod.index for pod in pods if _is_attachable(rule, pod, observed))
    return record.role(rule.role).attachable | IndexSet.of(answers)


def attachable_indexes(workload: Workload, rule: HostList, record: Record, observed: Observed) -> IndexSet:
    """Return those of them that the launcher may reach.

    A launcher that does not exist yet is created after its account.
    """
    proven = proven_indexes(rule, record, observed)
    if proven and has_launcher(record, rule) and not is_account_current(workload, observed):
        return EMPTY
    return proven


def _is_attachable(rule: HostList, pod: ObservedPod, observed: Observed) -> bool:
    if not rule.attach_check:
        return True
    result = observed.exec_results.get(_check_key(pod))
    return result is not None and result.status is ExecStatus.DONE and result.exit_code == 0


def _checks(rule: HostList, record: Record, observed: Observed, unlisted: IndexSet) -> Iterator[Exec]:
    """Yield a check for every pod that runs and is not listed; one that failed is left out once, so that it
    is run again."""
    for pod in current_pods(record, rule.role, observed):
        if pod.index in unlisted and _check_key(pod) not in observed.exec_results:
            key = _check_key(pod)
            yield Exec(key, pod.name, pod.uid, rule.container, rule.attach_check, read_only=True)


def _check_key(pod: ObservedPod) -> str:
    return f"attach/{pod.uid}"
