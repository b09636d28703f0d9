"""`python -m kvstore` is `corelkv`."""

import sys

from kvstore.cli import main

sys.exit(main())
