"""Fuzzes the local API server: random requests must get the same responses as from kube-apiserver.

A sequence is generated from a seed and a number only, so that it is reproducible; it is a plain list of
steps, so that it can be shrunk to the few that matter. Each family of steps has its module; `sequences`
combines them, `runner` replays them, `shrink` reduces them, `report` summarizes the results.
"""
