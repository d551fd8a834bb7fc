"""`python -m adjoint`: equivalent to the command `adjoint`."""

import sys

from .tools.cli.main import main

sys.exit(main())
