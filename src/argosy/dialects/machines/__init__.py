"""Serves MachinePool: machines that are kept at a number, whichever jobs run on them."""
