"""`python -m retrograd` is the `retrograd` command."""

import sys

from ._command import main

sys.exit(main())
