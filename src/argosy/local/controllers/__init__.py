"""The built-in controllers of the local control plane, each around a pure `decide` function."""
