"""Images of checkpoints: bytes that depend on nothing but what they are made from."""

from datetime import UTC, datetime

import msgspec

from argosy.checkpoint.images import Layer, Source, build_image, is_of_owner

LAYER = Layer(f"sha256:{'1' * 64}", 10240, f"sha256:{'1' * 64}")
SOURCE = Source(
    container="main",
    base_image="gcr.io/team/train:v1",
    pod="train-0",
    namespace="research",
    engine="containerd",
    owner="research/train",
)
AT = datetime(2026, 3, 1, 12, 0, 0, 123456, UTC)


def test_manifest_has_the_annotations_of_old_and_new_runtimes() -> None:
    manifest = msgspec.json.decode(build_image(LAYER, SOURCE, AT, "amd64").manifest)
    assert manifest["annotations"] == {
        "org.criu.checkpoint.container.name": "main",
        "org.criu.checkpoint.pod.name": "train-0",
        "org.criu.checkpoint.pod.namespace": "research",
        "org.criu.checkpoint.rootfsImageName": "gcr.io/team/train:v1",
        "org.criu.checkpoint.engine.name": "containerd",
        "io.kubernetes.cri-o.annotations.checkpoint.name": "main",
        "io.kubernetes.cri-o.annotations.checkpoint.rootfsImageName": "gcr.io/team/train:v1",
        "training.dcnlab.com/owner": "research/train",
    }


def test_manifest_and_configuration_describe_the_layer() -> None:
    built = build_image(LAYER, SOURCE, AT, "arm64")
    manifest, config = msgspec.json.decode(built.manifest), msgspec.json.decode(built.config)
    assert manifest["layers"] == [
        {"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": LAYER.digest, "size": 10240}
    ]
    assert manifest["config"]["digest"] == built.config_digest
    assert manifest["config"]["size"] == len(built.config)
    assert config["rootfs"]["diff_ids"] == [LAYER.diff_id]
    assert (config["os"], config["architecture"]) == ("linux", "arm64")
    assert config["created"] == "2026-03-01T12:00:00Z"


def test_image_that_is_built_again_has_the_same_digest() -> None:
    assert build_image(LAYER, SOURCE, AT, "amd64") == build_image(LAYER, SOURCE, AT, "amd64")


def test_image_without_owner_belongs_to_every_job() -> None:
    assert is_of_owner({}, "research/train")
    assert is_of_owner({"training.dcnlab.com/owner": "research/train"}, "research/train")
    assert not is_of_owner({"training.dcnlab.com/owner": "other/train"}, "research/train")
