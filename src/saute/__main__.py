"""`python -m saute` is the command line."""

import sys

from saute.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
