"""The node agent: runs pods as isolated processes of this machine, for one or more nodes."""
