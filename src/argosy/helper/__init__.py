"""The program in init containers of users' pods: it waits for roles and prepares remote exec.

Standard library only, and no import of the rest of Argosy: the container image may hold
nothing but this folder, and locally it is run by its path.
"""
