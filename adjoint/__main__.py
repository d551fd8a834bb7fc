"""`python -m adjoint`: the same as the command `adjoint`."""

import sys

from .cli.main import main

sys.exit(main())
