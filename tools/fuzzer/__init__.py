"""The oracle: random sequences of requests, sent to kube-apiserver and to ours, must be answered alike.

A sequence is made from a seed and a number and nothing else, so that it can be made again; it is a plain list
of steps, so that it can be cut down to the few that matter. Each family of steps has a module of its own;
`sequences` mixes them, `runner` replays them, `shrinking` cuts them down, `account` says what came of it.
"""
