"""The built-in controllers of the local control plane, each a small room around a pure deciding function."""
