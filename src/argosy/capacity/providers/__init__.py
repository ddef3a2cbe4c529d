"""Providers: pure translations between machines and the requests of one cloud."""
