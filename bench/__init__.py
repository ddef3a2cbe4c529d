"""Measurements, each beside its own lower bound taken in the same run: what a machine adds shows in both."""
