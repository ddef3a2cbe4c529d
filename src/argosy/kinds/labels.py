"""All labels, annotations and well-known names that Argosy writes or reads.

The labels of pods (job, role, index, attempt, replacement) are enough to rebuild a lost Record.
"""

DOMAIN = "argosy.dev"

MANAGED_BY = "app.kubernetes.io/managed-by"
"""Label of every object that the operator creates; its caches select on it."""

MANAGER = "argosy"
"""The value of MANAGED_BY, and the operator's field manager."""

JOB = f"{DOMAIN}/job"
"""Name of the owning job object."""

ROLE = f"{DOMAIN}/role"
INDEX = f"{DOMAIN}/index"
ATTEMPT = f"{DOMAIN}/attempt"
REPLACEMENT = f"{DOMAIN}/replacement"

POD_GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
"""Annotation that makes a pod a member of a Volcano PodGroup."""

TASK_SPEC_ANNOTATION = "volcano.sh/task-spec"

POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
"""Label that makes a pod a member of a PodGroup of the coscheduling plugin."""

QUEUE_NAME = "kueue.x-k8s.io/queue-name"
POD_GROUP_NAME = "kueue.x-k8s.io/pod-group-name"
POD_GROUP_SIZE = "kueue.x-k8s.io/pod-group-total-count"
"""Kueue's labels for queue and pod group, and its annotation with the number of pods to wait for."""

HELPER_CONTAINER = "argosy"
"""Name of the init container that waits for other roles, or copies the helper for remote exec."""

INITIALIZER_CONTAINER = "initializer"
"""Name of that init container in pods of AresJobs."""

HOSTS_CONTAINER = "argosy-hosts"
"""Name of the sidecar that keeps the host list of a launcher current."""

HOSTS_INIT_CONTAINER = "argosy-hosts-init"
"""Name of the init container that writes it first, unless an API prescribes another."""

HOSTNAME = "kubernetes.io/hostname"

POD_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""Annotation of pods: those with lower cost are deleted first when there are to be fewer."""

OPERATOR_NAMESPACE = "argosy-system"
"""Default namespace of the operator, its Lease, its Secrets and the Service by which pods reach it."""

NODE_LIMITATIONS = f"{DOMAIN}/node-limitations"
"""Annotation on local nodes: which features their pods lack, and why."""

LOCAL_NODE = f"{DOMAIN}/local"
"""Label of the nodes of a local control plane."""

TERMINATION_DEADLINE = f"{DOMAIN}/termination-deadline"
"""Annotation on a node whose end is announced: when it ends, in RFC 3339."""

TERMINATION_SOURCE = f"{DOMAIN}/termination-source"
"""Annotation on such a node: who announced its end."""

TERMINATION_TAINT = f"{DOMAIN}/termination"
"""Key of the taint (NoSchedule) on such a node; its value is the source."""

HOURLY_PRICE = f"{DOMAIN}/hourly-price"
"""Annotation on a node: what it costs per hour, as a decimal number in the currency of the price catalog."""

MACHINE_POOL = f"{DOMAIN}/machine-pool"
"""Label of ProvisionedInstances of a MachinePool: its name. Label of their Nodes: NAMESPACE.NAME of it."""

MACHINE_POOL_SOURCE = "machine-pool"
"""The source of ends that a MachinePool announces of nodes that it does not need any more."""

MACHINE_SOURCE = "provisioned-instance"
"""The source of ends of VMs that their cloud reports, and which the Node repeats from their status."""

REHEARSAL = "rehearsal"
"""The source of ends that `argosy rehearse reclaim` announces."""

QUARANTINE_UNTIL = f"{DOMAIN}/quarantine-until"
"""Annotation on a node that gets no new pods of jobs until this time, in RFC 3339."""

QUARANTINE_NAMESPACES = f"{DOMAIN}/quarantine-namespaces"
"""Annotation on such a node: the namespaces, separated by commas, whose pods avoid it. None: all."""

QUARANTINE_REASON = f"{DOMAIN}/quarantine-reason"
"""Annotation on such a node: why."""

QUARANTINE_SOURCE = f"{DOMAIN}/quarantine-source"
"""Annotation on such a node: who began the quarantine; `argosy` if the operator did."""

UID = f"{DOMAIN}/uid"
"""Label with the uid of a child's owner. It counts only together with an ownerReference to that owner."""

DIGEST = f"{DOMAIN}/digest"
"""Annotation on updated children: a hash of the inputs that their body was rendered from."""

HOSTS_ACK = f"{DOMAIN}/hosts-ack"
"""Annotation on a launcher: etag of the host files that its sidecar has written last."""

CHECKPOINT_ACK = f"{DOMAIN}/checkpoint-ack"
"""Annotation on a pod: the checkpoint that its sidecar has acknowledged last, as JSON."""

CHECKPOINT_RESUMED = f"{DOMAIN}/checkpoint-resumed"
"""Annotation on a pod: step and digest of the checkpoint that it has started from."""

RESTORED_CONTAINERS = f"{DOMAIN}/restored-containers"
"""Annotation on a pod: the containers, separated by commas, whose images are checkpoints. Nodes of the local
control plane do not start them as anything else."""

ORIGINAL_IMAGES = f"{DOMAIN}/original-images"
"""Annotation on a restored pod of a Job: the images that its Job names for those containers, as JSON."""

RESTORE_PODS = f"{DOMAIN}/restore-pods"
"""Annotation on a CheckpointBackup, or on the pods of a Job: `false` lets pods start from the beginning."""

TRAINING_STEP = f"{DOMAIN}/training-step"
"""Annotation on a pod: the step that its program has reported last."""

CHECKPOINT_CONTAINER = "argosy-checkpoint"
"""Name of the sidecar that delivers orders to save a checkpoint and acknowledges checkpoints."""

CHECKPOINT_INIT_CONTAINER = "argosy-checkpoint-init"
"""Name of the init container that finds the checkpoint from which a pod resumes."""

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""kubectl's annotation with the applied manifest; it describes one object and is never propagated."""

ALLOWED_NAMESPACES = f"{DOMAIN}/allowed-namespaces"
"""Annotation on a Secret: the namespaces, separated by commas, whose objects may use it; `*` for all."""
