"""Embedder: images in, L2-normalized embeddings out, in the three steps prepare, infer, finish."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Never, Self

import numpy as np
from PIL import Image

from vicinal.calibration.arrays import FloatArray
from vicinal.models.bundle import BACKBONE_FILE, ModelBundle
from vicinal.models.decoding import DecodeLimits, ImageSource, decoded_image, require_content
from vicinal.models.errors import BundleError, NetworkDeviceError, ReadyEmbeddingsError
from vicinal.models.runtime import (
    CPU,
    Device,
    open_session,
    run_network,
    session_device,
    session_provider,
    usable_processors,
)
from vicinal.models.similarity import normalize

if TYPE_CHECKING:
    import onnxruntime as ort

logger = logging.getLogger(__name__)

# Images that one thread of a processor takes at a time: what is between the layers stays in its cache.
_PER_THREAD = 2
# Jobs send so many times as many images to a GPU as searches are collected, as far as its memory allows. What
# is decoded meanwhile waits in the memory of the machine.
_JOB_TIMES = 4
# What ONNX Runtime and CUDA say where memory is short; they have no class of error for it.
_OUT_OF_MEMORY = ("failed to allocate memory", "out of memory")


@dataclass(frozen=True)
class PreparedQueries:
    """Pictures of queries, ready for the network."""

    tensors: list[FloatArray]  # (3, S, S) each, of those that have to be embedded
    # Names in a cache, None for an image that has none; empty without a cache
    keys: tuple[str | None, ...] = ()
    # (d,) embeddings that are known already, by number of the query
    known: dict[int, FloatArray] = field(default_factory=dict)


class Embedder:
    """Runs a bundle's backbone with ONNX Runtime, on `auto`, `cpu`, `cuda` or `cuda:N`.

    Attributes:
        batch_size: Images that one call of the network takes: on a GPU several times as many as are given.
            One whose memory is too small for them takes half as many from then on, down to half of what was
            given.
        problem: Why images are embedded on the processor though a GPU was to do it; None where all is well.

    Raises:
        BundleError: The ONNX file cannot be loaded or does not give `dim` values an image, or it is a space.
    """

    def __init__(
        self,
        bundle: ModelBundle,
        *,
        device: Device = "auto",
        threads: int = 0,
        batch_size: int = 32,
        limits: DecodeLimits | None = None,
    ) -> None:
        self.bundle = bundle
        self.batch_size = batch_size
        self.limits = limits or DecodeLimits()
        self._threads, self._network_threads = threads or usable_processors(), threads
        self.problem: str | None = None
        self._given_size = batch_size
        self._changing = threading.Lock()
        self._session = self._open(device, self._network_threads)
        if self.provider != CPU:
            self.batch_size *= _JOB_TIMES
        self._check_width()

    def refined_by(self, bundle: ModelBundle) -> Self:
        """The same open network, whose bundle has another refiner."""
        other = copy(self)
        other.bundle = bundle
        return other

    @property
    def provider(self) -> str:
        """Execution provider in use, such as `CPUExecutionProvider`."""
        return session_provider(self._session)

    @property
    def runs_on(self) -> str:
        """The provider, and on a GPU its device: `CUDAExecutionProvider on cuda:0`."""
        provider = self.provider
        return provider if provider == CPU else f"{provider} on {session_device(self._session)}"

    def decode(self, source: ImageSource) -> Image.Image:
        """Decode one image within the limits; see `models.decoding.decode_image`."""
        with self.decoding(source) as image:
            return image

    def decoding(
        self, source: ImageSource, *, limits: DecodeLimits | None = None
    ) -> AbstractContextManager[Image.Image]:
        """The same while a context lasts, so that its memory counts; see `models.decoding.decoded_image`."""
        side = self.bundle.preprocessing.decode_side
        # Never below what a thumbnail needs: index and query must decode alike to score alike.
        return decoded_image(source, limits=limits or self.limits, target_side=max(side, 512))

    def prepare_source(self, source: ImageSource, *, refuse_blank: bool = False) -> FloatArray:
        """Decode and preprocess one image to (3, S, S) float32; nothing else of it stays."""
        with self.decoding(source) as image:
            if refuse_blank:
                require_content(image)
            return self.prepare(image)

    def prepare(self, image: Image.Image) -> FloatArray:
        """Preprocess one RGB image to (3, S, S) float32."""
        return self.bundle.preprocessing.to_tensor(image)

    @property
    def n_together(self) -> int:
        """Images that are cheapest when a thread runs the network on them together."""
        return _PER_THREAD if self.provider == CPU else min(self._given_size, self.batch_size)

    def infer(self, tensors: Sequence[FloatArray], *, alone: bool = True) -> FloatArray:
        """Run the network on n prepared images (3, S, S); gives (n, d) float32, not normalized.

        Several images on a processor are shared out to its threads: threads that work on an image together
        wait for each other at every layer. Images that are not `alone` are all done by the calling thread.
        After a NetworkDeviceError, a failure of the GPU, the next images are embedded on the processor.
        """
        if not tensors:
            return np.empty((0, self.bundle.dim), np.float32)
        n_threads = self._threads
        if self.provider == CPU and not alone:
            return _in_batches(self._one_threaded, tensors, _PER_THREAD)
        if self.provider != CPU:
            return self._on_gpu(tensors)
        if len(tensors) == 1 or n_threads == 1:
            return _in_batches(self._session, tensors, self.batch_size)
        size = min(_PER_THREAD, -(-len(tensors) // n_threads))
        with ThreadPoolExecutor(n_threads) as pool:
            runs = pool.map(partial(_run, self._one_threaded), _batches(tensors, size))
            return np.concatenate(list(runs))

    def warm_up(self) -> None:
        """Have a GPU meet every number of images that searches come in, so that none of them waits for it.

        On a processor nothing is done: the network ran once when it was opened, and is as fast as ever then.
        A GPU that fails is told of as in a search, and the processor takes over.
        """
        if self.provider == CPU:
            return
        side = self.bundle.preprocessing.input_size
        blank = np.zeros((3, side, side), np.float32)
        sizes = [2**power for power in range(self.n_together.bit_length())]
        with suppress(NetworkDeviceError):
            for size in sorted({*sizes, self.n_together}):
                self.infer([blank] * size)

    @staticmethod
    def finish(raw: FloatArray) -> FloatArray:
        """L2-normalize what the network gives."""
        return normalize(raw)

    def embed(
        self, images: Sequence[ImageSource], *, refuse_blank: bool = False, raw: bool = False
    ) -> FloatArray:
        """Embed n paths, encoded bytes or PIL images as (n, d) float32, L2-normalized unless `raw`.

        An image that cannot be used, with `refuse_blank` also one of one color all over, is refused with
        ImageError; a path that cannot be read raises OSError.
        """
        finish = np.asarray if raw else self.finish
        if len(images) == 1:
            return finish(self.infer([self.prepare_source(images[0], refuse_blank=refuse_blank)]))
        with ThreadPoolExecutor(self._threads) as pool:
            prepare = partial(self.prepare_source, refuse_blank=refuse_blank)
            tensors = list(pool.map(prepare, images))
        return finish(self.infer(tensors))

    def embed_queries(self, images: Sequence[ImageSource], milliseconds: dict[str, float]) -> FloatArray:
        """(n, d) float32 of pictures, L2-normalized; `milliseconds` gets the stages `decode` and `embed`."""
        prepared = self.prepare_queries(images, milliseconds)
        started = time.perf_counter()
        embedded = self.finish_queries(prepared, self.infer(prepared.tensors))
        milliseconds["embed"] = 1e3 * (time.perf_counter() - started)
        return embedded

    def prepare_queries(
        self, images: Sequence[ImageSource], milliseconds: dict[str, float]
    ) -> PreparedQueries:
        """Decode and preprocess the pictures of queries: all of `embed_queries` before the network."""
        started = time.perf_counter()
        # One after the other: each is small before the next is decoded.
        tensors = [self.prepare_source(image, refuse_blank=True) for image in images]
        milliseconds["decode"] = 1e3 * (time.perf_counter() - started)
        return PreparedQueries(tensors)

    def finish_queries(self, prepared: PreparedQueries, raw: FloatArray) -> FloatArray:
        """Embeddings of what `infer` gave, (n, d) float32, L2-normalized."""
        del prepared
        return self.finish(raw)

    def _on_gpu(self, tensors: Sequence[FloatArray]) -> FloatArray:
        session = self._session
        while True:
            size = self.batch_size
            try:
                return np.concatenate([_padded(session, batch, size) for batch in _batches(tensors, size)])
            except Exception as error:  # ONNX Runtime raises classes of its own that share no public base
                text = " ".join(str(error).split())
                is_short = any(one in text.lower() for one in _OUT_OF_MEMORY)
                if is_short and self._halved(size) < size:
                    continue
                raise self._left_gpu(text) from error

    def _halved(self, size: int) -> int:
        """Half of a batch size that failed, however many threads saw it fail."""
        with self._changing:
            if self.batch_size == size > max(1, self._given_size // 2):
                self.batch_size //= 2
                logger.warning(
                    "the GPU's memory is too small for %d images at a time: %d from now on",
                    size,
                    self.batch_size,
                )
            return self.batch_size

    def _left_gpu(self, reason: str) -> NetworkDeviceError:
        with self._changing:
            if self.problem is None:
                self._session = self._open("cpu", self._network_threads)
                self.batch_size = min(self.batch_size, self._given_size)
                self.problem = f"the GPU of the network failed: {reason}"
                logger.error("%s; images are embedded on the processor from now on", self.problem)
            return NetworkDeviceError(self.problem)

    def _open(self, device: Device, threads: int) -> ort.InferenceSession:
        path = self.bundle.backbone_path
        checksum = self.bundle.manifest.files[BACKBONE_FILE]
        return open_session(path, checksum, device=device, threads=threads)

    @cached_property
    def _one_threaded(self) -> ort.InferenceSession:
        return self._open("cpu", 1)

    def _check_width(self) -> None:
        side = self.bundle.preprocessing.input_size
        try:
            shape = _run(self._session, [np.zeros((3, side, side), np.float32)]).shape
        except Exception as error:  # ONNX Runtime raises classes of its own that share no public base
            raise BundleError(f"bundle '{self.bundle.name}' does not run: {error}") from error
        if shape != (1, self.bundle.dim):
            raise BundleError(
                f"bundle '{self.bundle.name}' says dim {self.bundle.dim}, its network gives {shape}"
            )


class SpaceEmbedder(Embedder):
    """Stands where an embedder does for a gallery of ready embeddings: it takes no image."""

    def __init__(self, bundle: ModelBundle, gallery: str) -> None:
        self.bundle = bundle
        self.gallery = gallery
        self.problem = None
        self.batch_size = self._given_size = 32
        self.limits = DecodeLimits()
        self._threads = 1

    @property
    def provider(self) -> str:
        """No provider runs anything."""
        return "none"

    @property
    def runs_on(self) -> str:
        """Nothing runs."""
        return self.provider

    def decoding(self, source: ImageSource, *, limits: DecodeLimits | None = None) -> Never:
        """Refuse an image."""
        del source, limits
        raise ReadyEmbeddingsError(self.gallery, self.bundle.manifest.space)

    def prepare(self, image: Image.Image) -> Never:
        """Refuse an image; see `decoding`."""
        self.decoding(image)

    def warm_up(self) -> None:
        """There is nothing to warm."""

    def infer(self, tensors: Sequence[FloatArray], *, alone: bool = True) -> Never:
        """Refuse prepared images; see `decoding`."""
        del tensors, alone
        raise ReadyEmbeddingsError(self.gallery, self.bundle.manifest.space)


def _run(session: ort.InferenceSession, batch: Sequence[FloatArray]) -> FloatArray:
    return run_network(session, np.stack(batch))


def _padded(session: ort.InferenceSession, batch: Sequence[FloatArray], most: int) -> FloatArray:
    """Run a batch, padded to a power of two: cuDNN prepares its convolutions anew for every other size."""
    n = min(most, 1 << (len(batch) - 1).bit_length())
    blanks = [np.zeros_like(batch[0])] * (n - len(batch))
    return _run(session, [*batch, *blanks])[: len(batch)]


def _in_batches(session: ort.InferenceSession, tensors: Sequence[FloatArray], size: int) -> FloatArray:
    return np.concatenate([_run(session, batch) for batch in _batches(tensors, size)])


def _batches(tensors: Sequence[FloatArray], size: int) -> Iterator[Sequence[FloatArray]]:
    for start in range(0, len(tensors), size):
        yield tensors[start : start + size]
