"""The error that training code may want to handle."""


class CheckpointError(Exception):
    """A checkpoint could not be saved or found; earlier checkpoints are still usable."""
