"""How asking the operator ends when it does not end well."""


class RefusedError(Exception):
    """The operator answered, and asking again would not change the answer."""


class DeadlineExceededError(Exception):
    """The deadline passed."""
