"""Servers, builders, fakes and helpers for tests and benchmarks. Not part of the package."""
