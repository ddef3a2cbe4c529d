"""Reads the spec of a SpotInstanceJob, of either shape: its meaning, or what is wrong with it.

The CRD rejects most of what is wrong. Objects that it has not checked (those stored before, and those of API
servers without CEL) are refused here, with the same texts.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from urllib.parse import quote

import msgspec
from msgspec import Struct

from argosy.checkpoint.image_names import InvalidImageNameError, Repository, parse_repository
from argosy.dialects.spot import reasons
from argosy.kinds.meta import Json
from argosy.kinds.spot import (
    BUCKET_NAME_PROBLEM,
    BUCKET_PATH_PROBLEM,
    BUCKET_PATTERN,
    BUCKET_TYPES,
    CREDENTIALS_PROBLEM,
    DURATION_PATTERN,
    INTERVAL_MODES,
    LEVELS,
    MAX_SECRET_CHARS,
    NAMED_STORAGE_TYPES,
    SECRET_PATTERN,
    STORAGE_TYPES,
    STRATEGIES,
    CheckpointConfig,
    CheckpointStorage,
    Recovery,
    SpotInstanceJob,
    SpotInstanceJobSpec,
)
from argosy.kinds.spot_machines import InstanceTemplate, SpotInstanceVM
from argosy.kinds.status_condition import SecretReference
from argosy.kinds.template import template_errors
from argosy.kinds.text import join_messages, quote_value, shorten
from argosy.plan.actions import SecretRef
from argosy.plan.contract import Ref
from argosy.workload.capacity import PodRequirements
from argosy.workload.checkpoint_policy import SHARED_SCHEMES, CheckpointPolicy

Template = SpotInstanceVM | InstanceTemplate

MAX_FOLDER_CHARS = 240
"""Of the name of a job in that of its folder: file systems allow 255 bytes, and part of its uid follows."""
POD_PATH = "spec.jobTemplate.spec.template"

_SECONDS = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "µs": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h)")
_SCHEMES = {"gcs": "gs", "s3": "s3", "pvc": "pvc", "file": "file"}


class Rejection(Struct, frozen=True):
    """Why nothing is created for a job."""

    reason: str
    message: str


class SpotJob(Struct, frozen=True, kw_only=True):
    """What a valid spec means, whatever its shape."""

    name: str
    namespace: str
    uid: str
    generation: int
    replicas: int
    template: Ref[SpotInstanceVM] | Ref[InstanceTemplate]
    job_template: Json
    containers: tuple[str, ...]
    pod: PodRequirements
    repository: Repository
    registry_credentials: SecretRef | None
    interval: float
    adaptive: bool
    level: str
    keep_last: int
    delete_images: bool
    storage_uri: str
    """Where the training itself keeps its checkpoints; empty if that is not said."""
    storage_problem: str
    """Why no checkpoints can be sent to the bucket of a job that an earlier version has started."""
    storage_credentials: str
    """Name of the Secret for a bucket; empty: the identity of the pod."""
    gcp_credentials: SecretReference
    recovery: Recovery
    ttl: int | None

    @property
    def job_spec(self) -> Json:
        return _mapping(self.job_template.get("spec"))

    @property
    def saves_by_order(self) -> bool:
        """True if the training saves itself to a store, so that it gets orders and a folder."""
        return self.level == "App" and bool(self.storage_uri) and not self.storage_problem

    @property
    def has_bucket(self) -> bool:
        """True if the pods cannot mount the store, to which the program may also write by itself."""
        return self.storage_uri.partition("://")[0] not in ("", *SHARED_SCHEMES)

    def checkpoint_policy(self, copy: str, *, has_saved: bool) -> CheckpointPolicy:
        """Return where a copy of the training keeps its checkpoints. A later job of this name has another
        folder.

        The URI of a bucket is quoted, because a path may have any character. A program that has never saved
        to it starts even if it cannot be reached.
        """
        uri = f"{self.storage_uri}-{self.uid[:8]}"
        if self.has_bucket:
            scheme, _, path = uri.partition("://")
            uri = f"{scheme}://{quote(path)}"
        return CheckpointPolicy(
            uri,
            self.keep_last,
            self.interval,
            self.adaptive,
            credentials=self.storage_credentials,
            copy=copy,
            starts_without_store=self.has_bucket and not has_saved,
        )

    @property
    def template_hash(self) -> str:
        """Return by what a change of the Job template is noticed."""
        return hashlib.sha256(msgspec.json.encode(self.job_template, order="sorted")).hexdigest()[:16]


def read_job(obj: SpotInstanceJob) -> SpotJob | Rejection:
    """Return what a job asks for, or the first reason to refuse it with all its messages.

    Earlier versions did not look at buckets, to which programs write by themselves. So a job that has begun
    is not refused because of its bucket: its replicas could not be replaced any more.
    """
    spec = obj.spec
    problems, bucket_problems = list(_spec_problems(spec)), _bucket_problems(spec.checkpoint_config)
    if problems := problems + ([] if obj.status.argosy else bucket_problems):
        return Rejection(reasons.INVALID_SPEC, join_messages(problems))
    config = spec.checkpoint_config
    try:
        repository = parse_repository(config.checkpoint_image_repo)
    except InvalidImageNameError as error:
        path = "spec.checkpointConfig.checkpointImageRepo"
        return Rejection(reasons.INVALID_IMAGE_REPO, f"{path}: {error}")
    if problems := list(_template_problems(spec.job_template)):
        return Rejection(reasons.INVALID_JOB_TEMPLATE, join_messages(problems))
    job_template = _mapping(spec.job_template)
    if problems := list(_unsupported(_mapping(job_template.get("spec")))):
        return Rejection(reasons.UNSUPPORTED_JOB_TEMPLATE, join_messages(problems))
    return _valid_job(obj, job_template, repository)


def template_ref(obj: SpotInstanceJob) -> Ref[SpotInstanceVM] | Ref[InstanceTemplate]:
    """Return the template of VMs that a job names, of whichever shape."""
    namespace = obj.metadata.namespace
    later = obj.spec.instance_template_ref
    if later is not None and later.name:
        return Ref(InstanceTemplate, later.name, namespace)
    seed = obj.spec.spot_instance_vm_ref
    return Ref(SpotInstanceVM, seed.name if seed else "", namespace)


def parse_interval(text: str) -> float:
    """Return a Go duration in seconds; 0 if it is none."""
    if not re.fullmatch(DURATION_PATTERN, text):
        return 0.0
    return float(sum(Decimal(number) * _SECONDS[unit] for number, unit in _PART.findall(text)))


def gpu_count(template: Template | None) -> int:
    """Return the GPUs of each VM."""
    return template.spec.gpu.count if template is not None and template.spec.gpu is not None else 0


def secret_ref(reference: SecretReference | None) -> SecretRef | None:
    return SecretRef(reference.name, reference.namespace) if reference and reference.name else None


def _valid_job(obj: SpotInstanceJob, job_template: Json, repository: Repository) -> SpotJob:
    spec, meta = obj.spec, obj.metadata
    config = spec.checkpoint_config
    job_spec = _mapping(job_template.get("spec"))
    pod_spec = _mapping(_mapping(job_spec.get("template")).get("spec"))
    containers = pod_spec.get("containers")
    assert isinstance(containers, list)
    ttl = job_spec.get("ttlSecondsAfterFinished")
    folder = shorten(meta.name, MAX_FOLDER_CHARS)
    return SpotJob(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        generation=meta.generation,
        replicas=spec.replicas,
        template=template_ref(obj),
        job_template=job_template,
        containers=tuple(str(_mapping(container).get("name")) for container in containers),
        pod=msgspec.convert(pod_spec, PodRequirements),
        repository=repository,
        registry_credentials=secret_ref(config.checkpoint_repo_credential_ref),
        interval=parse_interval(config.checkpoint_interval),
        adaptive=config.interval_mode == "Adaptive",
        level=config.level,
        keep_last=config.retention.keep_last,
        delete_images=config.retention.delete_images,
        storage_uri=_storage_uri(config.checkpoint_storage, f"{meta.namespace}/{folder}"),
        storage_problem=join_messages(_bucket_problems(config)),
        storage_credentials=_storage_credentials(config.checkpoint_storage),
        gcp_credentials=spec.gcp_credentials_secret_ref,
        recovery=spec.recovery,
        ttl=ttl if isinstance(ttl, int) else None,
    )


def _storage_uri(storage: CheckpointStorage | None, folder: str) -> str:
    if storage is None or not storage.type:
        return ""
    parts = (storage.bucket, storage.path_prefix, folder)
    path = "/".join(part.strip("/") for part in parts if part.strip("/"))
    kind = storage.type.lower()
    return f"{_SCHEMES[kind]}://{'/' if kind == 'file' else ''}{path}"


def _storage_credentials(storage: CheckpointStorage | None) -> str:
    return storage.credentials.name if storage is not None and storage.credentials is not None else ""


def _spec_problems(spec: SpotInstanceJobSpec) -> Iterator[str]:
    seed, later = spec.spot_instance_vm_ref, spec.instance_template_ref
    if bool(seed and seed.name) == bool(later and later.name):
        yield "spec: exactly one of spotInstanceVMRef and instanceTemplateRef must be set"
    if spec.replicas < 1:
        yield f"spec.replicas: invalid value {spec.replicas}: must be at least 1"
    if not spec.gcp_credentials_secret_ref.name:
        yield "spec.gcpCredentialsSecretRef.name: must not be empty"
    yield from _config_problems(spec.checkpoint_config)
    yield from _recovery_problems(spec.recovery)


def _config_problems(config: CheckpointConfig) -> Iterator[str]:
    path = "spec.checkpointConfig"
    if parse_interval(config.checkpoint_interval) <= 0:
        text = quote_value(config.checkpoint_interval)
        problem = f"invalid duration {text}; must be more than zero, such as 30m or 1h30m"
        yield f"{path}.checkpointInterval: {problem}"
    yield from _choice_problems(f"{path}.level", config.level, LEVELS)
    yield from _choice_problems(f"{path}.intervalMode", config.interval_mode, INTERVAL_MODES)
    if config.retention.keep_last < 1:
        value = config.retention.keep_last
        yield f"{path}.retention.keepLast: invalid value {value}: must be at least 1"
    if config.checkpoint_storage is not None:
        yield from _storage_problems(f"{path}.checkpointStorage", config.checkpoint_storage)


def _storage_problems(path: str, storage: CheckpointStorage) -> Iterator[str]:
    kind = storage.type.lower()
    if not kind and (storage.bucket or storage.path_prefix):
        yield f"{path}.type: required if bucket or pathPrefix is set"
    elif kind and kind not in STORAGE_TYPES:
        yield f"{path}.type: unknown storage type; must be one of {', '.join(STORAGE_TYPES)}"
    elif kind in NAMED_STORAGE_TYPES and not storage.bucket.strip("/"):
        yield f"{path}.bucket: required if type is {', '.join(NAMED_STORAGE_TYPES)}"


def _bucket_problems(config: CheckpointConfig) -> list[str]:
    """Return what keeps the operator from sending checkpoints to a bucket."""
    storage, path = config.checkpoint_storage, "spec.checkpointConfig.checkpointStorage"
    return [] if storage is None else [*_problems_of_bucket(path, storage, config.level)]


def _problems_of_bucket(path: str, storage: CheckpointStorage, level: str) -> Iterator[str]:
    is_used = level == "App" and storage.type.lower() in BUCKET_TYPES
    if storage.credentials is not None:
        name = storage.credentials.name
        if not is_used:
            yield f"{path}.credentials: {CREDENTIALS_PROBLEM}"
        elif len(name) > MAX_SECRET_CHARS or not re.fullmatch(SECRET_PATTERN, name):
            yield f"{path}.credentials.name: invalid value {quote_value(name)}: must be the name of a Secret"
    if not is_used:
        return
    bucket, _, rest = storage.bucket.strip("/").partition("/")
    if bucket and not re.fullmatch(BUCKET_PATTERN, bucket):
        yield f"{path}.bucket: {BUCKET_NAME_PROBLEM}"
        rest = ""
    for name, value in (("bucket", rest), ("pathPrefix", storage.path_prefix.strip("/"))):
        if value and any(part in ("", ".", "..") for part in value.split("/")):
            yield f"{path}.{name}: {BUCKET_PATH_PROBLEM}"


def _recovery_problems(recovery: Recovery) -> Iterator[str]:
    yield from _choice_problems("spec.recovery.strategy", recovery.strategy, STRATEGIES)
    if recovery.max_restarts < 0:
        yield f"spec.recovery.maxRestarts: invalid value {recovery.max_restarts}: must be at least 0"
    for index, code in enumerate(recovery.recover_on_exit_codes):
        if not 1 <= code <= 255:
            path = f"spec.recovery.recoverOnExitCodes[{index}]"
            yield f"{path}: invalid value {code}: must be between 1 and 255"
    if recovery.on_demand_fallback_after < 0:
        value = recovery.on_demand_fallback_after
        yield f"spec.recovery.onDemandFallbackAfter: invalid value {value}: must be at least 0"


def _choice_problems(path: str, value: str, choices: tuple[str, ...]) -> Iterator[str]:
    if value not in choices:
        yield f"{path}: invalid value {quote_value(value)}: must be one of {', '.join(choices)}"


def _template_problems(template: object) -> Iterator[str]:
    """Yield what makes a Job template unusable; the API server is asked about the rest."""
    if not isinstance(template, Mapping):
        yield "spec.jobTemplate: must be a map"
        return
    for part in ("metadata", "spec"):
        if part in template and not isinstance(template[part], Mapping):
            yield f"spec.jobTemplate.{part}: must be a map"
    pod = _mapping(template.get("spec")).get("template")
    if not isinstance(pod, Mapping):
        yield f"{POD_PATH}: required; must be a pod template"
        return
    problems = [f"{path}: {problem}" for path, problem in template_errors(pod, POD_PATH)]
    containers = _mapping(pod.get("spec")).get("containers")
    listed = containers if isinstance(containers, list) else []
    if not problems and not listed:
        problems = [f"{POD_PATH}.spec.containers: required; must have at least one container"]
    elif not problems and not all(_mapping(item).get("name") for item in listed):
        problems = [f"{POD_PATH}.spec.containers: every container must have a name"]
    yield from problems


def _unsupported(spec: Json) -> Iterator[str]:
    path = "spec.jobTemplate.spec"
    for name in ("parallelism", "completions"):
        value = spec.get(name)
        if value is not None and value != 1:
            yield f"{path}.{name}: invalid value {quote_value(value)}: must be 1: a replica is one pod"
    for name in ("manualSelector", "selector", "managedBy"):
        if spec.get(name):
            yield f"{path}.{name}: not supported for replicas; must be unset"
    if _mapping(_mapping(spec.get("template")).get("spec")).get("nodeName"):
        yield f"{POD_PATH}.spec.nodeName: not supported: the operator chooses the node; must be unset"


def _mapping(value: object) -> Json:
    return dict(value) if isinstance(value, Mapping) else {}
