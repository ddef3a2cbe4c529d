"""Clouds for tests, as far as machines and the operator see them, with their real wire protocols."""
