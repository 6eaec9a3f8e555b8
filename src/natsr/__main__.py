"""`python -m natsr` is the program `natsr`."""

from natsr.cli import main

main()
