from typing import TYPE_CHECKING

if TYPE_CHECKING:  # so that checkers read this file's user before what it names
    from ..tensor import Tensor as Tensor
