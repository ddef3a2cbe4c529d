"""Defaults of built-in objects, and what the server sets when they are created or updated."""
