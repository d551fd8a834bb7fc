"""The version, and what adjoint was built against: nothing, it is plain Python."""

__all__ = ["__version__", "cuda", "hip", "xpu"]

__version__ = "0.1.0"
cuda: str | None = None
hip: str | None = None
xpu: str | None = None
