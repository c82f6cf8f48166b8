"""Multistage back-propagation: batches of thousands with the memory of one chunk (torch).

Patel et al., "Recall@k Surrogate Loss with Large Batches and Similarity Mixup" (RSK, CVPR 2022), section 4.2.
A metric-learning loss needs the embeddings of the whole batch, but not the activations: pass 1 embeds chunk
by chunk without a graph, the loss gives a gradient for every embedding, and pass 2 embeds each chunk again
with a graph and sends that gradient through it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from vicinal.training.execution.device import random_states, set_random_states

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
    """Accumulate the gradients of a batch's loss in the parameters of network and loss; gives it, detached.

    A batch of one chunk is embedded once, with its graph. A larger one gives the same gradients as embedding
    its chunks with their graphs, concatenating, and back-propagating once: dropout and other random layers
    draw the same in both passes, and batch-norm statistics are updated once.

    `images` are (n, 3, S, S) on any device, of which chunks are moved to the network's device, channels last;
    `labels`, (n,), are there. The network maps to (b, d), the loss is `loss(embeddings, labels)` of
    (n, d) float32, a scalar.
    """
    if chunk_size < 1:
        raise ValueError(f"chunk_size is {chunk_size}, expected at least 1")
    device = next(network.parameters()).device
    chunks = images.split(chunk_size)
    is_staged = len(chunks) > 1
    buffers = [buffer.clone() for buffer in network.buffers()] if is_staged else []

    def embed(chunk: Tensor) -> Tensor:
        moved = chunk.to(device, non_blocking=True)
        # Features that a frozen trunk pooled have no height and width.
        if moved.ndim == 4:
            moved = moved.contiguous(memory_format=torch.channels_last)
        with autocast():
            embedded: Tensor = network(moved)
        return embedded.float()

    states, parts = [], []
    with torch.set_grad_enabled(not is_staged):
        for chunk in chunks:
            states.append(random_states(device))
            parts.append(embed(chunk))
    own = torch.cat(parts) if is_staged else parts[0]
    embeddings = own.detach().requires_grad_()
    loss = loss_function(embeddings, labels)
    loss.backward()
    learns = any(parameter.requires_grad for parameter in network.parameters())
    if embeddings.grad is None or not learns:
        return loss.detach()
    if not is_staged:
        own.backward(embeddings.grad)
        return loss.detach()
    with torch.no_grad():
        for buffer, before in zip(network.buffers(), buffers, strict=True):
            buffer.copy_(before)
    # Afterwards the next batch draws as pass 1 and the loss left it.
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        for chunk, state, part in zip(chunks, states, embeddings.grad.split(chunk_size), strict=True):
            set_random_states(state, device)
            embed(chunk).backward(part)
    return loss.detach()
