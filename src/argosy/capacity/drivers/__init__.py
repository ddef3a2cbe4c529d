"""Drivers: the code that sends the requests of a provider; the only I/O of this package."""
