"""`python -m rooftune.cli`: the command `tune` where its script is not on the path."""

from .entry import main

main()
