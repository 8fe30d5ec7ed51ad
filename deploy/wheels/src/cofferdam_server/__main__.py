"""`python -m cofferdam_server` is `coffer`."""

from cofferdam_server import main

main()
