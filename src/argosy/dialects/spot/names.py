"""Names and labels the objects of a SpotInstanceJob.

Names of Jobs and VMs end in `-<index>-<stamp>`. A stamp is a Unix time in seconds that a job uses only once.
A name that would be too long is cut before that, and gets a hash of the part that was cut.
"""

import re

from argosy.kinds.spot import JOB_LABEL, REPLICA_LABEL
from argosy.kinds.text import shorten

MAX_NAME_CHARS = 63
MAX_BACKUP_CHARS = 253
_FORBIDDEN = re.compile(r"[^-a-z0-9]")


def job_name(job: str, index: int, stamp: int) -> str:
    """Return the name of a replica's batch/v1 Job."""
    return _numbered(job, index, stamp)


def instance_name(job: str, template: str, index: int, stamp: int) -> str:
    """Return the name of a ProvisionedInstance, of its VM and of its Node."""
    return _numbered(f"{job}-{template}", index, stamp)


def backup_name(job: str, pod: str, stamp: int) -> str:
    """Return the name of a CheckpointBackup."""
    suffix = f"-{stamp}"
    return shorten(f"{job}-{pod}", MAX_BACKUP_CHARS - len(suffix)) + suffix


def pull_secret_name(job: str) -> str:
    """Return the name of the Secret by which restored replicas pull their images."""
    return shorten(job, MAX_BACKUP_CHARS - len("-checkpoint-pull")) + "-checkpoint-pull"


def check_name(job: str) -> str:
    """Return the name of the Job that is only checked by the API server."""
    return _numbered(job, 0, 0)


def machine_name(instance: str) -> str:
    """Return the name of a ProvisionedInstance as that of a VM: a DNS label that begins with a letter."""
    return shorten(_clean(instance), MAX_NAME_CHARS).rstrip("-")


def label_value(text: str) -> str:
    """Return the text as the value of a label, cut like a name."""
    return shorten(text, MAX_NAME_CHARS)


def copy_name(index: int) -> str:
    """Return the name of a replica's folder of checkpoints, which is also the role by which its pod reads
    orders: each replica is a role of one pod."""
    return f"replica-{index}"


def replica_labels(job: str, index: int) -> dict[str, str]:
    """Return the labels of everything that belongs to a replica."""
    return {JOB_LABEL: label_value(job), REPLICA_LABEL: str(index)}


def _numbered(text: str, index: int, stamp: int) -> str:
    suffix = f"-{index}-{stamp}"
    return shorten(_clean(text), MAX_NAME_CHARS - len(suffix)) + suffix


def _clean(text: str) -> str:
    clean = _FORBIDDEN.sub("-", text)
    return clean if clean[:1].isalpha() else f"s-{clean}"
