"""The supported gang schedulers, one module each."""
