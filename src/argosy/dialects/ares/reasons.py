"""Lists the reasons in conditions, roles and events of AresJobs that other job APIs do not have.

Most are fixed by AresOperator, whose users and tools know them. Reasons of all job APIs are in
`workload.reasons`. A condition that only repeats the phase has the phase as its reason.
"""

# Conditions.

JOB_FAILED = "JobFailed"
"""Condition Failed: a limit was exceeded; the message has the field and its value."""
DEFINITION_CHANGED = "DefinitionChanged"
"""Condition Failed is False again: an invalid spec was edited and is valid."""

# Roles.

CREATE_ERROR = "CreateError"
"""A pod or service of the role could not be created and is tried again; the message is the API server's."""
POSSIBLE_NODE_DOWN = "PossibleNodeDown"
"""Failed: a pod of the role is on a node that is down."""

# Events.

JOB_PHASE_TRANSITION = "JobPhaseTransition"
"""The job changed its phase."""
ROLE_PHASE_TRANSITION = "RolePhaseTransition"
"""A role changed its phase."""
NAME_CONFLICT = "NameConflict"
"""A pod or service of another owner has the name of one that is needed."""
UNKNOWN_FIELD = "UnknownField"
"""The spec has a field that the API does not have; it is kept and ignored."""
FIELD_IGNORED = "FieldIgnored"
"""The spec has a valid field that has no effect in this job."""
INVALID_LABEL_VALUE = "InvalidLabelValue"
"""An annotation that is copied to pods cannot be a label too."""
STALE_CLUSTER_SPEC = "StaleClusterSpec"
"""The template of a role was edited while its pods run; they keep the old one."""
RESTART_POLICY_OVERWRITTEN = "RestartPolicyOverwritten"
"""A template has another restartPolicy than its role, whose policy applies."""
ENV_OVERWRITTEN = "EnvOverwritten"
"""A container sets a variable that the framework sets too; the framework's value applies."""
ADDRESS_LIST_TOO_LONG = "AddressListTooLong"
"""The addresses of a role do not fit into a variable; pods start without it."""


def action_executed(verb: str, kind: str, *, failed: bool) -> str:
    """Return the reason for an executed action: SuccessfulCreatePod, FailedDeleteJob and the like."""
    return f"{'Failed' if failed else 'Successful'}{verb}{kind}"
