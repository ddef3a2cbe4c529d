"""Templates of checkpointed pods."""

from argosy.checkpoint.pod_templates import LAST_APPLIED, pod_template


def test_template_lacks_what_the_cluster_has_added() -> None:
    mount = {"name": "kube-api-access-x", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    data = {"name": "data", "mountPath": "/data"}
    metadata: dict[str, object] = {
        "name": "train-0",
        "uid": "1",
        "labels": {"app": "train"},
        "annotations": {LAST_APPLIED: "{}", "kept": "yes"},
    }
    spec: dict[str, object] = {
        "nodeName": "node-1",
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "a:1", "volumeMounts": [mount, data]}, {"name": "b"}],
        "volumes": [{"name": "kube-api-access-x", "projected": {}}, {"name": "data", "emptyDir": {}}],
    }
    assert pod_template(metadata, spec) == {
        "metadata": {"labels": {"app": "train"}, "annotations": {"kept": "yes"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "a:1", "volumeMounts": [data]}, {"name": "b"}],
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    }
