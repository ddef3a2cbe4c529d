"""Decides what a failed pod means for its Job: counted, ignored, or the end of the Job.

The rules of `podFailurePolicy` are evaluated in order and the first match wins; a failure that matches no
rule is counted. Only terminated pods are evaluated: a pod being deleted has no exit codes yet.
"""

from msgspec import Struct

from argosy.local.controllers.api_types import ExitCodes, FailureRule, Job, Pod


class FailureVerdict(Struct, frozen=True):
    counts: bool = True
    fails_job: str = ""
    """The message of the Job's failure, if this pod ends the Job."""


def has_failed(job: Job, pod: Pod) -> bool:
    """Return True if a pod has failed; a terminating one has, unless podReplacementPolicy is Failed."""
    if pod.status.phase == "Failed":
        return True
    deleting = pod.metadata.deletion_timestamp is not None and pod.status.phase != "Succeeded"
    return deleting and job.spec.pod_replacement_policy != "Failed"


def evaluate_failure(job: Job, pod: Pod) -> FailureVerdict:
    policy = job.spec.pod_failure_policy
    if policy is None or pod.status.phase != "Failed":
        return FailureVerdict()
    for number, rule in enumerate(policy.rules):
        match = _match(rule, pod)
        if match:
            message = f"{match} matching {rule.action} rule at index {number}"
            return FailureVerdict(
                counts=rule.action != "Ignore",
                fails_job=message if rule.action == "FailJob" else "",
            )
    return FailureVerdict()


def _match(rule: FailureRule, pod: Pod) -> str:
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    if rule.on_exit_codes is not None:
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
            ended = status.state.terminated
            if ended is not None and _code_matches(rule.on_exit_codes, status.name, ended.exit_code):
                return f"Container {status.name} for pod {name} failed with exit code {ended.exit_code}"
        return ""
    for pattern in rule.on_pod_conditions:
        for condition in pod.status.conditions:
            if (condition.type, condition.status) == (pattern.type, pattern.status):
                return f"Pod {name} has condition {condition.type}"
    return ""


def _code_matches(codes: ExitCodes, container: str, code: int) -> bool:
    if code == 0 or (codes.container_name and codes.container_name != container):
        return False
    return (code in codes.values) == (codes.operator == "In")
