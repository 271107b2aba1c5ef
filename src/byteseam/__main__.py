"""``python -m byteseam``: the command line."""

import sys

from byteseam.cli import main

if __name__ == "__main__":
    sys.exit(main())
