"""Short-time Fourier transforms: spectra of overlapping pieces of a signal, and back."""

from __future__ import annotations

from typing import Any

from ...core.errors import DTypeError, InvalidArgument, ShapeError
from ...core.mode import refuse_where
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply
from ...runtime.public import explaining, public
from ..elementwise.complex import view_as_real
from ..index.slicing import SumWindows
from ..shape.arranging import pad
from ..shape.sizes import hold_sizes
from .fft import fft, ifft, irfft, rfft

__all__ = ["istft", "stft"]


def _window(name: str, like: Any, window: Any, n_fft: int, win_length: int) -> Any:
    """The window in the middle of `n_fft` places; ones where it is None."""
    if not 0 < win_length <= n_fft:
        raise InvalidArgument(
            f"{name}: expected 0 < win_length <= n_fft, got win_length={win_length}, n_fft={n_fft}"
        )
    if window is None:
        window = like.new_ones((win_length,), dtype=like.dtype.to_real())
    elif tuple(window.shape) != (win_length,):
        raise ShapeError(
            f"{name}: expected a 1D window tensor of size equal to win_length={win_length}, but "
            f"got window with size {list(window.shape)}"
        )
    before = (n_fft - win_length) // 2
    return window if win_length == n_fft else pad(window, (before, n_fft - win_length - before))


@explaining
@public()
def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """The Fourier transforms of windows of the signal, `hop_length` (n_fft // 4) apart.

    With `center` the signal is first padded, so that window number t is centred at t * hop_length;
    without, `align_to_window` begins at the window's first value where it is shorter than `n_fft`.

    Shapes: (L,) or (B, L): (..., N, T) for N frequencies and T windows; N is n_fft // 2 + 1 for a
    real signal unless `onesided` is False. Without `return_complex`, real and imaginary parts are
    a last dimension of size 2.
    Errors: InvalidArgument for sizes that do not fit; ShapeError for other dimensions.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.stft.html

    >>> x = ad.cos(ad.arange(16) * (2 * np.pi / 8))
    >>> ad.stft(x, 8, 8, center=False, return_complex=True).abs()[:, 0].round(decimals=3) + 0
    tensor([0., 4., 0., 0., 0.])
    """
    if input.dtype.category < 2:
        raise DTypeError(
            f"stft: expected a tensor of floating point or complex values, got {input.dtype}"
        )
    hop = n_fft // 4 if hop_length is None else hop_length
    if input.ndim not in (1, 2):
        raise ShapeError(f"stft: expected a 1D or 2D tensor, got shape {tuple(input.shape)}")
    input = hold_sizes("stft", input, dims=(-1,))
    x: Any = input if input.ndim == 2 else input.unsqueeze(0)
    if center and align_to_window is not None:
        raise InvalidArgument("stft: align_to_window should only be set when center=False")
    if center:
        x = pad(x, (n_fft // 2, n_fft // 2), pad_mode)
    elif align_to_window and win_length is not None and win_length < n_fft:
        before = (n_fft - win_length) // 2
        x = pad(x, (before, n_fft - win_length - before))
    if not 0 < n_fft <= x.shape[-1]:
        raise InvalidArgument(f"stft: expected 0 < n_fft <= {x.shape[-1]}, but got n_fft={n_fft}")
    if hop <= 0:
        raise InvalidArgument(f"stft: expected hop_length > 0, but got hop_length={hop}")
    taper = _window("stft", x, window, n_fft, n_fft if win_length is None else win_length)
    frames = x.unfold(-1, n_fft, hop) * taper
    whole = frames.dtype.is_complex
    if onesided is None:
        onesided = not whole
    if onesided and whole:
        raise InvalidArgument(
            "stft: Cannot have onesided output if window or input is complex; pass onesided=False"
        )
    if return_complex is None and not whole:
        raise InvalidArgument(
            "stft: requires the return_complex parameter be given for real inputs; pass "
            "return_complex=True"
        )
    norm = "ortho" if normalized else None
    spectra: Any = (rfft if onesided else fft)(frames, norm=norm).transpose(1, 2)
    if input.ndim == 1:
        spectra = spectra.squeeze(0)
    return spectra if return_complex or return_complex is None else view_as_real(spectra)


@explaining
@public()
def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The signal whose `stft` is `input`, by least squares where windows overlap.

    Shapes: complex (N, T) or (B, N, T); the result has n_fft + hop_length (T - 1) values, less the
    padding where `center`, or `length`.
    Errors: InvalidArgument where windows leave gaps, or sizes do not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.istft.html

    >>> x = ad.tensor([1., 2., 3., 4., 5., 6., 7., 8.])
    >>> ad.istft(ad.stft(x, 4, return_complex=True), 4)
    tensor([1., 2., 3., 4., 5., 6., 7., 8.])
    """
    if not input.dtype.is_complex:
        raise DTypeError(
            "istft: requires a complex-valued input tensor matching the output from stft with "
            f"return_complex=True, got {input.dtype}"
        )
    hop = n_fft // 4 if hop_length is None else hop_length
    if input.ndim not in (2, 3) or not input._data.size:
        raise ShapeError(
            f"istft: expected a tensor with 2 or 3 dimensions and values, got {tuple(input.shape)}"
        )
    if onesided is None:
        onesided = input.shape[-2] != n_fft
    expected = n_fft // 2 + 1 if onesided else n_fft
    if input.shape[-2] != expected:
        raise InvalidArgument(
            f"istft: expected the frequency dimension (3rd to the last) of the input tensor to "
            f"match n_fft={n_fft} when onesided={onesided}: {expected}, but got {input.shape[-2]}"
        )
    size = n_fft if win_length is None else win_length
    if not 0 < hop <= size:
        raise InvalidArgument(f"istft: expected 0 < hop_length <= win_length={size}, got {hop}")
    if onesided and return_complex:
        raise InvalidArgument(
            "istft: cannot have onesided input with complex output; pass onesided=False"
        )
    taper = _window("istft", input, window, n_fft, size)
    input = hold_sizes("istft", input, dims=(-2, -1))
    x: Any = input if input.ndim == 3 else input.unsqueeze(0)
    x = x.transpose(1, 2)
    if return_complex:
        frames: Any = ifft(x, norm="ortho" if normalized else None)
    else:
        half = x if onesided else x[..., : n_fft // 2 + 1]
        frames = irfft(half, n=n_fft, norm="ortho" if normalized else None)
    count = x.shape[1]
    total = n_fft + hop * (count - 1)
    signal = apply(SumWindows(1, n_fft, hop, total), frames * taper)
    weights = (taper * taper).expand(1, count, n_fft)
    envelope: Any = apply(SumWindows(1, n_fft, hop, total), weights)
    start = n_fft // 2 if center else 0
    end = total - start if length is None else min(start + length, total)
    signal, envelope = signal[:, start:end], envelope[:, start:end]
    refuse_where(
        (envelope.detach().abs() < 1e-11).any(),
        lambda: InvalidArgument("istft: window overlap add min is zero; windows leave gaps"),
    )
    signal = signal / envelope
    if length is not None and signal.shape[1] < length:
        signal = pad(signal, (0, length - signal.shape[1]))
    return signal if input.ndim == 3 else signal.squeeze(0)
