"""`python -m truthfl`."""

from truthfl.cli.entry import main

main()
