"""The elementwise ops in one namespace: arithmetic, comparison, functions, special functions."""

from __future__ import annotations

from . import arithmetic, comparison, functions, special
from .arithmetic import *  # noqa: F403 - this module exists to join them
from .arithmetic import ADD as ADD
from .arithmetic import DIV as DIV
from .arithmetic import MUL as MUL
from .arithmetic import SUB as SUB
from .comparison import *  # noqa: F403 - likewise
from .functions import *  # noqa: F403 - likewise
from .pointwise import Elementwise as Elementwise
from .pointwise import binary as binary
from .pointwise import conj as conj
from .pointwise import unary as unary
from .special import *  # noqa: F403 - likewise
from .special import Erf as Erf

__all__ = [*arithmetic.__all__, *comparison.__all__, *functions.__all__, *special.__all__]
