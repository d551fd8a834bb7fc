"""Functions of modules, under the name that PyTorch has them by: `torch.func`."""

from .nn.utils.stateless import functional_call

__all__ = ["functional_call"]


def __getattr__(name: str) -> object:
    from .absent import missing

    raise missing("func", name)
