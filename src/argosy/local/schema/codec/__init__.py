"""Decoding of built-in objects: types, zero values, quantities, times."""
