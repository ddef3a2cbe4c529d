"""Checkpoints of trainings. Pure outside of `drivers`."""
