"""The errors of requests to the operator."""


class RejectedError(Exception):
    """The operator answered, and asking again would not change the answer."""


class DeadlineExceededError(Exception):
    """The deadline passed."""
