"""`python -m truthfl`."""

from truthfl.cli.app import main

main()
