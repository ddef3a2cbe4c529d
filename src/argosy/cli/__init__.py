"""The command line. Every command is a module of its own, imported when it is called."""
