"""Where this package is: which files, and so which frames of a stack, are its own."""

from __future__ import annotations

import os

NAME = __name__.partition(".")[0]
FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
OURS = (FOLDER, NAME + os.sep)  # what names of our files begin with; compiled files' are relative
