"""The node agent: pods as isolated processes on this machine, watched over by one agent for several nodes."""
