"""`python -m argosy`: the command line."""

from argosy.cli.main import main

main()
