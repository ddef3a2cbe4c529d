"""Checkpoints of trainings. Pure, except for `drivers` and `sidecar`."""
