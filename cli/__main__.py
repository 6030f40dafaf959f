"""`python -m rooftune.cli`: the command `tune` where its script is not on the path."""

from .app import main

main()
