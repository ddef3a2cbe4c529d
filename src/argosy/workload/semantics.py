"""Defines what one job API prescribes differently from the others.

All policies of `workload` serve all APIs. Where an API that other operators have defined before us demands a
different rule, the rule is a field here, and the API's dialect sets it in one place. The defaults are the
rules of TrainingRun. Numbers in brackets are the sections of AresJob's specification that demand the field,
or with `et` those of et-operator's.
"""

from msgspec import Struct


class Semantics(Struct, frozen=True):
    """The rules of one API; the same for all of its jobs."""

    roles_path: str = "spec.roles"
    """Path of the roles in the object, for messages [2.2]."""
    role_label: str = ""
    """Label of the API that holds the role, on pods and Services; empty: none [2.5]."""
    index_label: str = ""
    """Label of the API that holds the index, on pods; empty: none [2.5]."""
    request_label: str = ""
    """Label of the API that holds the name of the object that asked for a replica to be added, on its pod and
    its Service; empty: none [et 2.6]."""
    report_pending_first: bool = False
    """Write the phase Pending before anything is created for the job [2.3]."""
    delete_children_if_invalid: bool = False
    """Delete the children of a job whose spec is invalid or was rejected; otherwise they are kept [2.6]."""
    unknown_condition_is_node_down: bool = False
    """Treat a node as down if any of its conditions is Unknown, not only Ready [3.2]."""
    replace_pods_on_down_nodes: bool = True
    """Replace pods that count as failed because of their node; otherwise only pods of phase Failed [3.4]."""
    forget_deleted_successes: bool = False
    """Count a replica as succeeded only while its succeeded pod exists and its node is up [3.2]."""
    running_needs_all_pods: bool = False
    """A role is Running only while all its pods run, and the job only once all its roles are Running at the
    same time; otherwise succeeded pods and roles count as well [3.2 rule 4, 3.3 rule 4]."""
    surge: bool = False
    """Create a replacement while the old pod still terminates, unless the role is never restarted or the job
    has checkpoints. Their names differ [2.5, 3.4]."""
    replaced_exit_codes: frozenset[int | None] = frozenset()
    """For the restart policy ExitCode: exit codes of the first terminated container after which a pod is
    replaced; None for pods that failed without one [3.4, et 3.6]. Empty: 128 and above of any container, and
    pods that were lost without an exit code."""
    keep_children: bool = False
    """A finished job keeps its children until it is deleted, except the Services of single pods, which go
    with the pods [et 3.7]."""
    keep_pods_without_restarts: bool = False
    """The cleanup policy also decides about pods that run when the restarts of the job are used up; otherwise
    they are deleted [et 3.7]."""
    count_unreplaced_failures: bool = False
    """Failed pods that are not replaced count towards the limit of restarts [3.4]."""
