"""Multistage back-propagation: batches of thousands with the memory of one chunk (torch).

Patel et al., "Recall@k Surrogate Loss with Large Batches and Similarity Mixup" (RSK, CVPR 2022), section
4.2. A metric-learning loss needs the embeddings of the whole batch, but not the activations: pass 1 embeds
chunk by chunk without a graph, the loss gives a gradient for every embedding, and pass 2 embeds each
chunk again with a graph and sends that gradient through it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from vicinal.models.training.random_states import random_states, set_random_states

__all__ = ["multistage_backward"]

Context = Callable[[], AbstractContextManager[object]]


def multistage_backward(
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    loss_function: Callable[[Tensor, Tensor], Tensor],
    *,
    chunk_size: int,
    autocast: Context = nullcontext,
) -> Tensor:
    """Accumulate the gradients of a batch's loss in the network's and the loss's parameters.

    A batch of one chunk is embedded once, with its graph. A larger one gives the same gradients as
    embedding its chunks with their graphs, concatenating, and back-propagating once: dropout and other
    random layers draw the same in both passes, and batch-norm statistics are updated once.

    Args:
        network: Maps (b, 3, S, S) to (b, d); in training mode if it shall train.
        images: (n, 3, S, S) on any device; chunks are moved to the network's.
        labels: (n,) class ids on the network's device.
        loss_function: `loss(embeddings (n, d) float32, labels) -> scalar`.
        chunk_size: Images that are embedded at a time, at least 1.
        autocast: Makes a context for the forward passes, such as `torch.autocast`.

    Returns:
        The loss, detached.

    Raises:
        ValueError: `chunk_size` is below 1.
    """
    if chunk_size < 1:
        raise ValueError(f"chunk_size is {chunk_size}, expected at least 1")
    device = next(network.parameters()).device
    if chunk_size >= len(images):
        with autocast():
            whole = network(images.to(device, non_blocking=True))
        loss = loss_function(whole.float(), labels)
        loss.backward()
        return loss.detach()
    chunks = images.split(chunk_size)
    buffers = [buffer.clone() for buffer in network.buffers()]
    states, parts = [], []
    with torch.no_grad():
        for chunk in chunks:
            states.append(random_states(device))
            with autocast():
                parts.append(network(chunk.to(device, non_blocking=True)).float())
    embeddings = torch.cat(parts).requires_grad_()
    loss = loss_function(embeddings, labels)
    loss.backward()
    gradient = embeddings.grad
    if gradient is None:
        return loss.detach()
    with torch.no_grad():
        for buffer, before in zip(network.buffers(), buffers, strict=True):
            buffer.copy_(before)
    # Afterwards the next batch draws as pass 1 and the loss left it.
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        for chunk, state, part in zip(chunks, states, gradient.split(chunk_size), strict=True):
            set_random_states(state, device)
            with autocast():
                again = network(chunk.to(device, non_blocking=True)).float()
            again.backward(part)
    return loss.detach()
