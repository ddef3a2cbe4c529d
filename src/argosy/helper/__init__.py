"""What runs inside users' pods, in init and sidecar containers: waiting for roles, host lists, remote exec.

Standard library only, and no import of the rest of Argosy: the container image may hold
nothing but this folder, and locally it is run by its path.
"""
