"""Sequences of different lengths in one tensor: packed (no padding computed) and padded.

Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.PackedSequence.html
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...core import dtype as dt
from ...core.errors import InvalidArgument, ShapeError
from ...ops.create.creation import tensor
from ...ops.shape.concatenation import cat, stack
from ...runtime.public import naming
from ...tensor import Tensor

__all__ = [
    "PackedSequence", "invert_permutation", "pack_padded_sequence", "pack_sequence",
    "pad_packed_sequence", "pad_sequence", "unpack_sequence", "unpad_sequence",
]  # fmt: skip


class _Packed(NamedTuple):
    data: Any
    batch_sizes: Any
    sorted_indices: Any = None
    unsorted_indices: Any = None


class PackedSequence(_Packed):
    """Sequences sorted by length and stored step by step, without padding.

        data[sum of batch_sizes[:t] + i] = step t of the i-th longest sequence

    `batch_sizes[t]` sequences have a step t. It is made by `pack_padded_sequence` or
    `pack_sequence`; recurrent layers take and return it.

    Args:
        data: Steps of all sequences, (sum of lengths, ...).
        batch_sizes: Number of sequences at each step, in int64.
        sorted_indices: Order that sorts the sequences by length. Default: None, they are sorted.
        unsorted_indices: Order that undoes it. Default: None, derived from sorted_indices.

    Errors: ShapeError where `batch_sizes` do not sum to the rows of `data`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.PackedSequence.html

    >>> from adjoint.nn.utils.rnn import pack_sequence
    >>> pack_sequence([ad.tensor([1., 2.]), ad.tensor([3.])]).batch_sizes
    tensor([2, 1])
    """

    __slots__ = ()
    _known = ("batch_sizes",)  # by whose values Python goes

    def __new__(
        cls, data: Any, batch_sizes: Any, sorted_indices: Any = None, unsorted_indices: Any = None
    ) -> PackedSequence:
        """See the class; either permutation is derived from the other."""
        if unsorted_indices is None and sorted_indices is not None:
            unsorted_indices = invert_permutation(sorted_indices)
        total = sum(batch_sizes.tolist())
        if total != data.shape[0]:
            raise ShapeError(
                f"PackedSequence: batch_sizes sum to {total}, but data has {data.shape[0]} rows; "
                "use pack_padded_sequence to make one"
            )
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Convert the data; the sequences are the same."""
        return self._replace(data=self.data.to(*args, **kwargs))

    @property
    def is_cuda(self) -> bool:
        """Whether the data lives on a CUDA device."""
        return bool(self.data.is_cuda)


def invert_permutation(permutation: Any) -> Any:
    """Permutation that undoes another one.

        result[permutation[i]] = i

    Args:
        permutation: Permutation, a vector of integers; None gives None.

    >>> from adjoint.nn.utils.rnn import invert_permutation
    >>> invert_permutation(ad.tensor([2, 0, 1]))
    tensor([1, 2, 0])
    """
    return None if permutation is None else permutation.argsort()


@naming
def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack padded sequences, leaving out the padding.

        data = input[t, i] for each step t and each sequence i that is longer than t

    Args:
        input: Padded sequences.
        lengths: Length of each sequence, a tensor or a sequence of ints.
        batch_first: Whether the batch is the first dimension. Default: False.
        enforce_sorted: Require sequences that are sorted by decreasing length; otherwise they are
            sorted. Default: True.

    Shapes: `input` is (time, batch, ...), or (batch, time, ...) where `batch_first`.
    Errors: InvalidArgument for lengths that are not positive, too long, or not sorted where
    `enforce_sorted`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.pack_padded_sequence.html

    >>> from adjoint.nn.utils.rnn import pack_padded_sequence
    >>> padded = ad.tensor([[1., 2.], [3., 0.]])
    >>> pack_padded_sequence(padded, [2, 1], batch_first=True).data
    tensor([1., 3., 2.])
    """
    sizes = lengths.tolist() if isinstance(lengths, Tensor) else [int(n) for n in lengths]
    if batch_first:
        input = input.transpose(0, 1)
    steps, batch = input.shape[:2]
    if len(sizes) != batch:
        raise InvalidArgument(
            f"pack_padded_sequence: Expected `len(lengths)` to be equal to batch_size, but got "
            f"{len(sizes)} (batch_size={batch}); is batch_first right?"
        )
    if min(sizes) <= 0 or max(sizes) > steps:
        raise InvalidArgument(
            f"pack_padded_sequence: Length of all samples has to be greater than 0 and at most "
            f"{steps}, got {sizes}"
        )
    order = None
    if not enforce_sorted:
        places = sorted(range(batch), key=lambda i: -sizes[i])
        order = tensor(places, device=input.device)
        sizes = [sizes[i] for i in places]
        input = input.index_select(1, order)
    elif sizes != sorted(sizes, reverse=True):
        raise InvalidArgument(
            f"pack_padded_sequence: `lengths` array must be sorted in decreasing order when "
            f"`enforce_sorted` is True, got {sizes}; pass enforce_sorted=False"
        )
    batch_sizes = [sum(n > t for n in sizes) for t in range(sizes[0])]
    data = cat([input[t, :count] for t, count in enumerate(batch_sizes)])
    return PackedSequence(data, tensor(batch_sizes), order)


@naming
def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Padded tensor and lengths of a packed sequence, the reverse of packing.

        output[t, i] = step t of sequence i, padding_value behind its end

    Args:
        sequence: Packed sequences.
        batch_first: Whether the batch becomes the first dimension. Default: False.
        padding_value: Value behind the ends. Default: 0.0.
        total_length: Length of the result. Default: None, that of the longest sequence.

    Shapes: output (time, batch, ...), or (batch, time, ...) where `batch_first`; lengths (batch,).
    Errors: InvalidArgument where `total_length` is shorter than the longest sequence.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.pad_packed_sequence.html

    >>> from adjoint.nn.utils.rnn import pack_sequence, pad_packed_sequence
    >>> packed = pack_sequence([ad.tensor([1., 2.]), ad.tensor([3.])])
    >>> pad_packed_sequence(packed, batch_first=True)
    (tensor([[1., 2.],
            [3., 0.]]), tensor([2, 1]))
    """
    counts = sequence.batch_sizes.tolist()
    if total_length is not None and total_length < len(counts):
        raise InvalidArgument(
            f"pad_packed_sequence: Expected total_length to be at least the length of the longest "
            f"sequence in input, but got total_length={total_length} and max sequence length "
            f"being {len(counts)}"
        )
    steps = []
    for rows in sequence.data.split(counts):
        missing = counts[0] - rows.shape[0]
        if missing:
            rows = cat([rows, rows.new_full((missing, *rows.shape[1:]), padding_value)])
        steps.append(rows)
    for _ in range((total_length or len(counts)) - len(counts)):
        steps.append(steps[0].new_full(steps[0].shape, padding_value))
    padded = stack(steps)
    lengths = tensor([sum(n > i for n in counts) for i in range(counts[0])], dtype=dt.int64)
    if sequence.unsorted_indices is not None:
        padded = padded.index_select(1, sequence.unsorted_indices)
        lengths = lengths[sequence.unsorted_indices.cpu()]
    return (padded.transpose(0, 1) if batch_first else padded), lengths


@naming
def pad_sequence(
    sequences: Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Sequences of different lengths as one padded tensor.

        output[t, i] = sequences[i][t], padding_value behind its end

    Args:
        sequences: Tensors (length, ...) that differ in their first size only.
        batch_first: Whether the batch becomes the first dimension. Default: False.
        padding_value: Value behind the ends. Default: 0.0.
        padding_side: "right" to pad at the end, "left" at the start. Default: "right".

    Shapes: each is (time, ...); the result (longest, batch, ...), or batch first.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.pad_sequence.html

    >>> from adjoint.nn.utils.rnn import pad_sequence
    >>> pad_sequence([ad.tensor([1, 2]), ad.tensor([3])], batch_first=True)
    tensor([[1, 2],
            [3, 0]])
    """
    longest = max(s.shape[0] for s in sequences)
    padded = []
    for s in sequences:
        missing = longest - s.shape[0]
        if missing:
            filler = s.new_full((missing, *s.shape[1:]), padding_value)
            s = cat([s, filler] if padding_side == "right" else [filler, s])
        padded.append(s)
    return stack(padded, dim=0 if batch_first else 1)


@naming
def unpad_sequence(padded_sequences: Tensor, lengths: Any, batch_first: bool = False) -> list[Any]:
    """Sequences of a padded tensor, each of its own length.

        result[i] = padded_sequences[:lengths[i], i]

    Args:
        padded_sequences: Padded sequences, (time, batch, ...).
        lengths: Length of each sequence, a tensor or a sequence of ints.
        batch_first: Whether the batch is the first dimension. Default: False.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.unpad_sequence.html

    >>> from adjoint.nn.utils.rnn import unpad_sequence
    >>> unpad_sequence(ad.tensor([[1, 2], [3, 0]]), [2, 1], batch_first=True)
    [tensor([1, 2]), tensor([3])]
    """
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [padded_sequences[i, : int(n)] for i, n in enumerate(lengths)]


@naming
def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences of different lengths.

        data = sequences[i][t] for each step t and each sequence i that is longer than t

    Args:
        sequences: Tensors (length, ...) that differ in their first size only.
        enforce_sorted: Require sequences that are sorted by decreasing length; otherwise they are
            sorted. Default: True.

    Errors: InvalidArgument where they are not sorted by decreasing length and `enforce_sorted`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.pack_sequence.html

    >>> from adjoint.nn.utils.rnn import pack_sequence
    >>> pack_sequence([ad.tensor([1, 2]), ad.tensor([3])]).data
    tensor([1, 3, 2])
    """
    lengths = [s.shape[0] for s in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Any]:
    """Sequences of a packed one, each of its own length, in their first order.

        result[i] = the steps of sequence i

    Args:
        packed_sequences: Packed sequences.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.unpack_sequence.html

    >>> from adjoint.nn.utils.rnn import pack_sequence, unpack_sequence
    >>> unpack_sequence(pack_sequence([ad.tensor([1, 2]), ad.tensor([3])]))
    [tensor([1, 2]), tensor([3])]
    """
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
