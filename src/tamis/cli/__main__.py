"""`python -m tamis.cli`, for where the script is not on the path."""

from tamis.cli import main

main()
