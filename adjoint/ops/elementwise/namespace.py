"""The elementwise ops in one namespace."""

from __future__ import annotations

from ..special import special
from ..special.special import *  # noqa: F403 - likewise
from ..special.special import Erf as Erf
from . import arithmetic, comparison, functions, logic, power, rounding, trigonometry
from .arithmetic import *  # noqa: F403 - this module exists to join them
from .arithmetic import ADD as ADD
from .arithmetic import DIV as DIV
from .arithmetic import MUL as MUL
from .arithmetic import SUB as SUB
from .comparison import *  # noqa: F403 - likewise
from .functions import *  # noqa: F403 - likewise
from .logic import *  # noqa: F403 - likewise
from .pointwise import Elementwise as Elementwise
from .pointwise import binary as binary
from .pointwise import conj as conj
from .pointwise import unary as unary
from .power import *  # noqa: F403 - likewise
from .rounding import *  # noqa: F403 - likewise
from .trigonometry import *  # noqa: F403 - likewise

__all__ = [
    *arithmetic.__all__, *comparison.__all__, *functions.__all__, *logic.__all__, *power.__all__,
    *rounding.__all__, *special.__all__, *trigonometry.__all__,
]  # fmt: skip
