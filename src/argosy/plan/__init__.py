"""Needs, inputs, children, actions and decisions of reconcilers, as plain data and pure functions."""
