"""Processes that train one network together, each with a part of every batch (torch).

The loss is that of the whole batch, so that it sees all pairs: embeddings are gathered, every process
computes the loss, and sends its own part of the gradient through its own network. The sum over the processes
is then the gradient of the whole batch.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from vicinal.models.errors import ConfigError, LostProcessError
from vicinal.training.execution.device import choose_device, random_states

Value = TypeVar("Value")

# What the first process does by itself, such as running every image through a frozen front, the others wait
# for. A process that dies is noticed at once: its connections close.
_LONGEST_WAIT = timedelta(days=1)


@dataclass(frozen=True)
class Processes:
    """The processes of a run, seen from one of them; one that is alone gets back what it gives.

    All processes call the same methods in the same order. The first one, rank 0, measures and writes; one
    that is not alone takes the GPU of its `local_rank`. The `host_group` exchanges what lies in the memory of
    the host.
    """

    rank: int = 0
    count: int = 1
    local_rank: int | None = None
    host_group: dist.ProcessGroup | None = None

    @property
    def is_first(self) -> bool:
        """True for the process that measures and writes."""
        return self.rank == 0

    def part(self, n: int, rank: int | None = None) -> slice:
        """A process's part of `n` rows, by default this one's: neighbors, up to one more than others have."""
        own = self.rank if rank is None else rank
        return slice(own * n // self.count, (own + 1) * n // self.count)

    def gather(self, own: Tensor, n: int) -> Tensor:
        """The `n` rows of all processes, in order, without a graph; this process gives those of `part(n)`."""
        if self.count == 1:
            return own.detach()
        sizes = [len(range(n)[self.part(n, rank)]) for rank in range(self.count)]
        # Both libraries want parts of one size.
        padded = own.new_zeros((max(sizes), *own.shape[1:]))
        padded[: len(own)] = own.detach()
        found = [torch.empty_like(padded) for _ in sizes]
        with self._together():
            dist.all_gather(found, padded, group=self._group(own))
        return torch.cat([rows[:size] for rows, size in zip(found, sizes, strict=True)])

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors of one dtype and device by their sums over the processes, equal bit for bit."""
        if self.count == 1 or not tensors:
            return
        together = torch.cat([one.flatten() for one in tensors])
        with self._together():
            dist.all_reduce(together, group=self._group(together))
        for one, part in zip(tensors, together.split([one.numel() for one in tensors]), strict=True):
            one.copy_(part.view_as(one))

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its mean over the processes; see `add_up`."""
        if self.count > 1:
            self.add_up(tensors)
            for one in tensors:
                one /= self.count

    def any(self, flag: bool) -> bool:
        """Tell if a flag is set in at least one process."""
        if self.count == 1:
            return flag
        flags = torch.tensor(int(flag))
        with self._together():
            dist.all_reduce(flags, dist.ReduceOp.MAX, group=self.host_group)
        return bool(flags)

    def total(self, number: int) -> int:
        """Sum of a number over the processes."""
        if self.count == 1:
            return number
        numbers = torch.tensor(number)
        with self._together():
            dist.all_reduce(numbers, group=self.host_group)
        return int(numbers)

    def from_first(self, make: Callable[[], Value]) -> Value:
        """Value of tensors, copied to the host, and plain values that the first process makes, for all."""
        if self.count == 1:
            return make()
        stream = io.BytesIO()
        if self.is_first:
            torch.save(make(), stream)
        sent = [stream.getvalue()]
        with self._together():
            dist.broadcast_object_list(sent, src=0, group=self.host_group)
        value: Value = torch.load(io.BytesIO(sent[0]), map_location="cpu", weights_only=True)
        return value

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Context that the processes pass one after the other, the first one first."""
        for _ in range(self.rank):
            self.any(False)
        yield
        for _ in range(self.rank, self.count):
            self.any(False)

    @contextmanager
    def own_draws(self, device: torch.device) -> Iterator[None]:
        """Context in which torch draws other random numbers in each process; afterwards all draw the same.

        Alone, nothing changes; where nothing is drawn inside, what comes afterwards draws as it would alone.
        """
        if self.count == 1:
            yield
            return
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(int(torch.randint(2**62, ())) + self.rank)
            before = random_states(device)
            yield
            after = random_states(device)
        if any(not torch.equal(state, after[kind]) for kind, state in before.items()):
            # Or the next context would draw the same.
            torch.randint(2**62, ())

    def _group(self, tensor: Tensor) -> dist.ProcessGroup | None:
        return self.host_group if tensor.device.type == "cpu" else None

    @contextmanager
    def _together(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise _lost(self.rank, self.count, error) from error


ALONE = Processes()


@contextmanager
def joined_processes(device: str) -> Iterator[Processes]:
    """Join the processes that `torchrun` started beside this one, by the environment; `ALONE` without any.

    GPUs exchange by NCCL, processors by Gloo.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield ALONE
        return
    rank, local_rank = int(os.environ.get("RANK", "0")), int(os.environ.get("LOCAL_RANK", "0"))
    place = choose_device(device, local_rank)
    host_group = None
    try:
        if place.type == "cuda":
            torch.cuda.set_device(place)
            dist.init_process_group("nccl")
            host_group = cast("dist.ProcessGroup", dist.new_group(backend="gloo", timeout=_LONGEST_WAIT))
        else:
            dist.init_process_group("gloo", timeout=_LONGEST_WAIT)
    except ValueError as error:
        raise ConfigError(f"{count} processes cannot join: {error}: start them with torchrun") from error
    except RuntimeError as error:
        raise _lost(rank, count, error) from error
    yield Processes(rank, count, local_rank, host_group)
    # After an error there is nobody to say goodbye to.
    dist.destroy_process_group()


def _lost(rank: int, count: int, error: RuntimeError) -> LostProcessError:
    return LostProcessError(rank, count, " ".join(str(error).split())[:200])
