"""`python -m podium`: the same as the command `podium`."""

from podium.cli import main

main()
