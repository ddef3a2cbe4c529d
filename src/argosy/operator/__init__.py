"""The operator as a process: its settings, its parts put together, and the addresses it answers on."""
