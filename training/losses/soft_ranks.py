"""Ranks of the positives of each query, made smooth by sigmoids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from vicinal.training.losses.base import required, sizes_of_classes

# Differences held at once, as (rows, positives, n), a few float32 tensors of them: 64 MiB each on an
# accelerator, so that launches do not count; 2 MiB on a processor, so that they stay in its cache.
_BLOCK = 1 << 24
_CACHED_BLOCK = 1 << 19


@dataclass(frozen=True)
class Classmates:
    """The other items of each item's class, padded to one width.

    `indices` are (n, p) rows of the classmates, of which padding repeats some; `exist`, (n, p), is false for
    it. The others, (n,), are a number in [0, n) a class, the number of an item within it, and the size of the
    class.
    """

    indices: Tensor
    exist: Tensor
    class_ids: Tensor
    positions: Tensor
    sizes: Tensor


@dataclass(frozen=True)
class VirtualExamples:
    """Mixtures `share * first + (1 - share) * second` of batch rows, (v,), padded; shares in [0, 1]."""

    first: Tensor
    second: Tensor
    share: Tensor
    exist: Tensor


def largest_class(labels: Tensor, limit: int | None) -> int:
    """The limit, or without one the size of the largest class, which waits for labels on an accelerator."""
    return int(sizes_of_classes(labels).max()) if limit is None else limit


def within_limit(loss: Tensor, mates: Classmates, limit: int) -> Tensor:
    """The loss, if no class has more than `limit` items; see `required`."""
    return required(
        loss,
        mates.sizes.max() <= limit,
        f"a class of the batch has more than max_per_class={limit} items: set it to the sampler's per_class",
    )


def classmates(labels: Tensor, most: int) -> Classmates:
    """Find the other items of each item's class, `most - 1` wide; of a larger class some are missed."""
    order = labels.argsort(stable=True)
    start = torch.searchsorted(labels[order], labels)
    sizes = sizes_of_classes(labels)
    positions = (
        torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device)) - start
    )
    # The classmates of an item are those 1, 2, ... places after it, in a circle.
    steps = torch.arange(1, most, device=labels.device)
    indices = order[start[:, None] + (positions[:, None] + steps) % sizes[:, None]]
    return Classmates(indices, steps < sizes[:, None], start, positions, sizes)


def soft_ranks(
    similarities: Tensor, mates: Classmates, temperature: float, virtual: VirtualExamples | None = None
) -> Tensor:
    """(n + v, p) number of items that a query ranks before each of its positives, made smooth.

    `sum over z other than x and q of sigmoid((s_qz - s_qx) / temperature)`: neither the positive nor the
    query counts. Only positives get ranks, in blocks of rows, and the sigmoids are computed again for the
    gradient: the memory is that of a few (n, n) matrices and a fixed amount.

    The v `virtual` mixtures are queries and database items as the n items are, their similarities mixed from
    the given (n, n). What padding holds has no meaning and no gradient.
    """
    ranks: Tensor = _SoftRanks.apply(similarities, mates, temperature, virtual)
    return ranks


def similarities_to_mates(
    similarities: Tensor, mates: Classmates, virtual: VirtualExamples | None = None
) -> Tensor:
    """(n + v, p) similarity of each query, virtual ones after the n items, to each of its positives."""
    if virtual is None:
        return similarities.gather(1, mates.indices)
    first, second, share = _mixture_of(similarities, slice(None), virtual)
    rows = torch.lerp(similarities[second], similarities[first], share[:, None])
    at_first, at_second = (rows.gather(1, own[mates.indices]) for own in (first, second))
    return torch.lerp(at_second, at_first, share[mates.indices])


class _SoftRanks(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, similarities: Tensor, mates: Classmates, temperature: float, virtual: VirtualExamples | None
    ) -> Tensor:
        ctx.save_for_backward(similarities)
        ctx.mates, ctx.temperature, ctx.virtual = mates, temperature, virtual
        ranks = similarities.new_empty(mates.indices.shape)
        for rows in _blocks(mates):
            examples = _similarities_of(similarities, rows, virtual)
            # A positive counts as half an item before itself.
            ranks[rows] = _sigmoids(examples, rows, mates, temperature).sum(dim=2) - 0.5
        return ranks

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (similarities,) = ctx.saved_tensors
        mates, temperature, virtual = ctx.mates, ctx.temperature, ctx.virtual
        gradient = torch.where(mates.exist, gradient, 0.0) / temperature
        total = torch.zeros_like(similarities)
        for rows in _blocks(mates):
            examples = _similarities_of(similarities, rows, virtual)
            sigmoids = _sigmoids(examples, rows, mates, temperature)
            slopes = (sigmoids * (1.0 - sigmoids)).mul_(gradient[rows, :, None])
            # The positive against itself is constant; summed up, it would leave a rounding error.
            positives = mates.indices[rows]
            slopes.scatter_(2, positives[:, :, None], 0.0)
            examples = slopes.sum(dim=1).scatter_add_(1, positives, -slopes.sum(dim=2))
            _add_gradient(total, examples, rows, virtual)
        return total, None, None, None


def _blocks(mates: Classmates) -> list[slice]:
    n_examples, width = mates.indices.shape
    on_host = mates.indices.device.type == "cpu"
    block = min(_BLOCK, _CACHED_BLOCK) if on_host else _BLOCK
    step = max(1, block // max(1, n_examples * width))
    return [slice(start, min(start + step, n_examples)) for start in range(0, n_examples, step)]


def _sigmoids(examples: Tensor, rows: slice, mates: Classmates, temperature: float) -> Tensor:
    # Anchors of padding may be -inf, the query itself, whose difference to itself is NaN.
    anchors = torch.where(mates.exist[rows], examples.gather(1, mates.indices[rows]), 0.0)
    return (examples[:, None, :] - anchors[:, :, None]).div_(temperature).sigmoid_()


def _similarities_of(similarities: Tensor, rows: slice, virtual: VirtualExamples | None) -> Tensor:
    """(b, n + v) similarities of some examples to all; -inf to padding and to the example itself."""
    if virtual is None:
        examples = similarities[rows].clone()
    else:
        first, second, share = _mixture_of(similarities, rows, virtual)
        real = torch.lerp(similarities[second], similarities[first], share[:, None])
        mixed = torch.lerp(real[:, virtual.second], real[:, virtual.first], virtual.share)
        examples = torch.cat([real, mixed.masked_fill_(~virtual.exist, -torch.inf)], dim=1)
    examples.diagonal(rows.start).fill_(-torch.inf)
    return examples


def _add_gradient(total: Tensor, examples: Tensor, rows: slice, virtual: VirtualExamples | None) -> None:
    """Add the gradient of (b, n + v) similarities, made by `_similarities_of`, to that of the (n, n)."""
    if virtual is None:
        total[rows] += examples
        return
    real, mixed = examples.split([len(total), len(virtual.share)], dim=1)
    real = real.index_add(1, virtual.first, mixed * virtual.share)
    real.index_add_(1, virtual.second, mixed * (1.0 - virtual.share))
    first, second, share = _mixture_of(total, rows, virtual)
    total.index_add_(0, first, real * share[:, None])
    total.index_add_(0, second, real * (1.0 - share[:, None]))


def _mixture_of(similarities: Tensor, rows: slice, virtual: VirtualExamples) -> tuple[Tensor, Tensor, Tensor]:
    # An item of the batch is a mixture of itself with itself.
    real = torch.arange(len(similarities), device=similarities.device)
    first = torch.cat([real, virtual.first])[rows]
    second = torch.cat([real, virtual.second])[rows]
    share = torch.cat([torch.ones_like(real, dtype=virtual.share.dtype), virtual.share])[rows]
    return first, second, share
