"""Everything that is registered for each API: one module or package per API, listed in `registry`."""
