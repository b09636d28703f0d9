"""Makes `python -m kvstore` the same as `corelkv`."""

import sys

from kvstore.cli import main

sys.exit(main())
