"""The program in init containers and sidecars of users' pods: it waits for roles, prepares remote exec, and
keeps host lists current.

Standard library only, and no import of the rest of Argosy: the container image may hold
nothing but this folder, and locally it is run by its path.
"""
