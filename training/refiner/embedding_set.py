"""Labelled embeddings that a refiner is trained or validated on, of one backbone or several; neighbors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from vicinal.calibration.arrays import FloatArray, Ints, Mask, Objects
from vicinal.calibration.label_codes import label_codes
from vicinal.models.errors import ModelsError
from vicinal.models.similarity import exact_similarities, normalize
from vicinal.refine.errors import RefinerTrainingError
from vicinal.training.evaluation.measurement import read_embeddings
from vicinal.training.evaluation.open_set import hold_out_classes

# Queries that are compared with all items at a time, fewer where that would make more than 64 MiB.
_ROWS = 1024
_BLOCK = 2**24
# Float32 products can swap neighbors of almost equal similarity; these are re-scored and cut off.
_SPARE = 8


@dataclass(frozen=True)
class EmbeddingSet:
    """(n, d) float32 embeddings, L2-normalized, their (n,) labels, and the (n,) numbers of the space and
    of the visit of each, items that were taken together; a visit is of one class.

    Cross-fitting: a backbone pulls the classes that it was trained on together more than any others, and a
    refiner trained on these learns to trust neighbors that it will not have. So the classes are divided into
    folds, and each fold is embedded by a backbone that was trained on the other folds. Each such backbone
    makes a space of its own: embeddings of different spaces cannot be compared, and the same label in two
    spaces is two classes.
    """

    embeddings: FloatArray
    labels: Objects
    spaces: Ints
    visits: Ints

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def of(
        cls,
        embeddings: npt.ArrayLike,
        labels: npt.ArrayLike,
        folds: npt.ArrayLike | None = None,
        visits: Ints | None = None,
    ) -> EmbeddingSet:
        """Check and normalize embeddings (n, d); `folds` name the backbone of each, None for one, `visits`
        the items that were taken together, None where none were.
        """
        # Text of numpy gives each label the room of the longest.
        named = np.array([str(one) for one in np.asarray(labels, dtype=object)], dtype=object)
        spaces = np.zeros(len(named), np.int64) if folds is None else np.asarray(folds)
        shape = np.shape(embeddings)
        if len(shape) != 2 or not shape[0] == len(named) == len(spaces):
            raise RefinerTrainingError(
                f"expected embeddings (n, d) for {len(named)} labels and {len(spaces)} folds, got {shape}"
            )
        if visits is None:
            visits = np.arange(len(named))
        else:
            _, codes = label_codes(named)
            together = np.stack([np.asarray(codes, np.int64), visits], axis=1)
            visits = np.unique(together, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
        spaces = np.unique(spaces, return_inverse=True)[1].astype(np.int64)
        try:
            return cls(normalize(embeddings), named, spaces, visits)
        except ModelsError as error:
            raise RefinerTrainingError(str(error)) from error

    @classmethod
    def join(cls, sets: Sequence[EmbeddingSet]) -> EmbeddingSet:
        """Sets of different backbones as one, each with spaces of its own."""
        dims = sorted({one.embeddings.shape[1] for one in sets})
        if len(dims) > 1:
            raise RefinerTrainingError(f"embeddings of {dims[0]} and {dims[1]} dimensions cannot be joined")

        def apart(numbers: list[Ints]) -> Ints:
            offsets = np.cumsum([0, *(int(one.max(initial=-1)) + 1 for one in numbers)])
            return np.concatenate([one + first for one, first in zip(numbers, offsets[:-1], strict=True)])

        return cls(
            np.concatenate([one.embeddings for one in sets]),
            np.concatenate([one.labels for one in sets]),
            apart([one.spaces for one in sets]),
            apart([one.visits for one in sets]),
        )

    def beside(self, others: EmbeddingSet) -> EmbeddingSet:
        """These and others of the same spaces, these first."""
        return EmbeddingSet(
            *(np.concatenate([getattr(one, field.name) for one in (self, others)]) for field in fields(self))
        )

    @property
    def dim(self) -> int:
        """Length of the embeddings."""
        return int(self.embeddings.shape[1])

    @property
    def class_ids(self) -> Ints:
        """(n,) classes as integers, different ones in different spaces."""
        _, names = label_codes(self.labels)
        return np.unique(self.spaces * (len(names) + 1) + names, return_inverse=True)[1].astype(np.int64)

    def subset(self, mask: Mask) -> EmbeddingSet:
        """The embeddings where `mask` (n,) is true; spaces keep their numbers."""
        return EmbeddingSet(self.embeddings[mask], self.labels[mask], self.spaces[mask], self.visits[mask])

    def positions_by_space(self) -> list[Ints]:
        """Positions of each space that has any."""
        return [np.flatnonzero(self.spaces == space) for space in np.unique(self.spaces)]

    def nearest(self, k: int, groups: Ints) -> tuple[Ints, FloatArray]:
        """(n, k) nearest items of each item within its space and outside of its own group, with similarities.

        The group, (n,), is its own position to leave out the item itself, its class to leave out all of that.
        Nearest first, -1 and -inf where there are fewer.
        """
        found = np.full((len(self), k), -1, np.int64)
        similarities = np.full((len(self), k), -np.inf, np.float32)
        for positions in self.positions_by_space():
            unit, own = self.embeddings[positions], groups[positions]
            nearest, similarities[positions] = nearest_items(unit, unit, k, query_groups=own, item_groups=own)
            found[positions] = np.where(nearest >= 0, positions[nearest], -1)
        return found, similarities

    def split_classes(self, share: float, seed: int) -> tuple[EmbeddingSet, EmbeddingSet]:
        """Split off a share of the classes, in (0, 1), of each space alike; the larger part comes first."""
        mask = hold_out_classes(self.class_ids, self.spaces, share, seed)
        return self.subset(~mask), self.subset(mask)

    def deal_classes(self, n_folds: int, seed: int) -> Ints:
        """(n,) fold of each embedding: a class is in one fold, and each fold has about as many of a space."""
        rng = np.random.default_rng(seed)
        class_ids, sizes = self.class_ids, np.bincount(self.class_ids)
        dealt = np.zeros(len(sizes), np.int64)
        for positions in self.positions_by_space():
            own = rng.permutation(np.unique(class_ids[positions]))
            # Those with a single item last, so that each fold has its share of the others.
            ordered = own[np.argsort(sizes[own] == 1, kind="stable")]
            dealt[ordered] = np.arange(len(ordered)) % n_folds
        return dealt[class_ids]

    @property
    def n_paired_classes(self) -> int:
        """Classes with two items or more."""
        return int((np.bincount(self.class_ids) > 1).sum())


def read_embedding_sets(paths: Sequence[Path]) -> EmbeddingSet:
    """Read one or several files; each file has spaces of its own.

    An `.npz` file has the arrays `embeddings` (n, d), `labels` (n,) and optionally `folds` (n,); a `.parquet`
    file the columns `embedding` (lists of d numbers), `label` and optionally `fold`; rows without a label are
    left out.
    """
    return EmbeddingSet.join([_read(path) for path in paths])


def _read(path: Path) -> EmbeddingSet:
    if path.suffix.lower() not in (".npz", ".parquet"):
        raise RefinerTrainingError(
            f"'{path}' is neither .npz nor .parquet: write embeddings and labels to one"
        )
    try:
        found = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_npz(path)
        # The rows without a label are of many classes, and not of one without a name.
        named = found.labels != ""
        if not named.any():
            raise RefinerTrainingError("no row has a label, so that there is nothing to learn from")
        return found.subset(named)
    except FileNotFoundError as error:
        raise RefinerTrainingError(f"there is no file '{path}'") from error
    except (ModelsError, RefinerTrainingError) as error:
        text = str(error)
        raise RefinerTrainingError(text if str(path) in text else f"'{path}': {text}") from error
    except (OSError, ValueError, pa.ArrowException) as error:
        raise RefinerTrainingError(f"'{path}' cannot be read: {error}") from error


def _read_npz(path: Path) -> EmbeddingSet:
    stored = read_embeddings(path)
    with np.load(path, allow_pickle=False) as arrays:
        folds = arrays.get("folds")
    return EmbeddingSet.of(stored.embeddings, stored.labels, folds)


def _read_parquet(path: Path) -> EmbeddingSet:
    table = pq.read_table(path)
    missing = [name for name in ("embedding", "label") if name not in table.column_names]
    if missing:
        raise RefinerTrainingError(f"'{path}' has no column '{missing[0]}'")
    lists = table["embedding"].combine_chunks()
    lengths = np.unique(lists.value_lengths().to_numpy(zero_copy_only=False))
    if len(lengths) != 1:
        raise RefinerTrainingError(f"'{path}' has embeddings of different lengths, or none")
    flat = lists.flatten().to_numpy(zero_copy_only=False)
    folds = table["fold"].to_numpy() if "fold" in table.column_names else None
    labels = ["" if label is None else str(label) for label in table["label"].to_pylist()]
    return EmbeddingSet.of(flat.reshape(len(table), -1), labels, folds)


def nearest_items(
    queries: FloatArray, items: FloatArray, k: int, *, query_groups: Ints, item_groups: Ints
) -> tuple[Ints, FloatArray]:
    """Find the k nearest items (m, d) of each query (n, d), all L2-normalized, without those of its group.

    The group of a query is its own position to leave out the query itself, its class to leave out all of its
    class, -1 to leave out nothing; those of items are at least 0. Gives (n, k) positions, nearest first, ties
    by position, -1 where there are fewer, and (n, k) exact cosine similarities, there -inf.
    """
    found = np.full((len(queries), k), -1, np.int64)
    similarities = np.full((len(queries), k), -np.inf, np.float32)
    rows = max(1, min(_ROWS, _BLOCK // len(items)))
    for start in range(0, len(queries), rows):
        part = slice(start, start + rows)
        allowed = query_groups[part, None] != item_groups
        nearest, exact = _nearest(queries[part], items, k, allowed)
        found[part, : nearest.shape[1]] = nearest
        similarities[part, : nearest.shape[1]] = exact
    return found, similarities


def _nearest(queries: FloatArray, items: FloatArray, k: int, allowed: Mask) -> tuple[Ints, FloatArray]:
    distances = np.where(allowed, -(queries @ items.T), np.inf)
    n_kept = min(k + _SPARE, len(items))
    kept = np.argpartition(distances, n_kept - 1, axis=1)[:, :n_kept]
    exact = exact_similarities(queries, items[kept])
    exact[~np.take_along_axis(allowed, kept, axis=1)] = -np.inf
    order = np.lexsort((kept, -exact), axis=1)[:, :k]
    similarities = np.take_along_axis(exact, order, axis=1)
    chosen = np.take_along_axis(kept, order, axis=1)
    return np.where(np.isfinite(similarities), chosen, -1), similarities
