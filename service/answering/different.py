"""Called different: pictures and items that a person said are not the same, and what follows in a search.

The same picture is known by its embedding. An item that it was called different from is left out of its
answers, and changes no score of another: it is taken out of the candidates after they were scored.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vicinal.calibration.arrays import FloatArray, Ints, Mask
from vicinal.indexer.errors import GalleryError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import digests_of
from vicinal.indexer.jobs.set_aside import stand_ins
from vicinal.indexer.state import Rows, state_of
from vicinal.indexer.state.state import Cached
from vicinal.indexer.views.view import GalleryView
from vicinal.service.answering.kept import AnswerKind, DifferentPair, KeptSearch
from vicinal.service.answering.store import different_pairs, stamp_of_different
from vicinal.service.search.gallery_search import Askers

logger = logging.getLogger(__name__)
# Cosines that differ from 1 by no more are of one picture; float32 products round by less than the other.
_SAME, _NEARLY = 1e-6, 1e-5
_NOBODY: Ints = np.empty(0, np.int64)
# Items that may hold the same picture.
_MOST_COPIES = 16


def same_picture(first: FloatArray, second: FloatArray) -> Mask:
    """(...) whether L2-normalized embeddings, (..., d) each, are of the same picture."""
    return np.asarray((first.astype(np.float64) * second.astype(np.float64)).sum(axis=-1) >= 1.0 - _SAME)


def called_different(
    search: KeptSearch, kind: AnswerKind, *, item_id: str | None = None, label: str | None = None
) -> list[str]:
    """Items that an answer to a search calls different from its picture.

    A wrong match is; of a picture that shows something else, or nothing of the gallery, so are the matches
    that it was shown: those of other labels, or all.
    """
    if kind == "wrong":
        return [] if item_id is None else [item_id]
    if search.threshold is None or kind == "unsure" or (kind != "absent" and label is None):
        return []
    shown = [one for one in search.candidates if one.score >= search.threshold and one.id != item_id]
    return [one.id for one in shown if kind == "absent" or one.label not in (None, label)]


@dataclass(frozen=True)
class _Pairs:
    """Pairs of one bundle."""

    pairs: list[DifferentPair]

    @cached_property
    def embeddings(self) -> FloatArray:
        return np.stack([one.embedding for one in self.pairs])


class CalledDifferent:
    """Pairs of one gallery, read again where they changed; any number of threads may ask."""

    def __init__(self, gallery: Gallery) -> None:
        self._gallery = gallery
        self._stored = Cached(state_of(gallery.path), self._read)
        # Stamp, and pairs by bundle.
        self._known: tuple[list[int], dict[str, _Pairs]] = [], {}
        # Of pictures whose ids were others, in one revision.
        self._ids: tuple[int, dict[bytes, str]] = -1, {}

    def of(self, queries: FloatArray, view: GalleryView, askers: Askers = None) -> list[Ints] | None:
        """Ascending positions of what (B, d) queries were called different from, as it counts; or None."""
        pairs = self._pairs(view.snapshot.manifest.bundle)
        if pairs is None or not len(queries):
            return None
        rows, columns = np.nonzero(queries @ pairs.embeddings.T >= 1.0 - _NEARLY)
        is_same = same_picture(queries[rows], pairs.embeddings[columns])
        who = np.array(askers or [None] * len(queries), dtype=object)[rows]
        counts = [pairs.pairs[n].counts_for(one) for one, n in zip(who, columns, strict=True)]
        is_same &= np.array(counts, bool)
        if not is_same.any():
            return None
        found: dict[int, list[DifferentPair]] = defaultdict(list)
        for row, column in zip(rows[is_same].tolist(), columns[is_same].tolist(), strict=True):
            found[row].append(pairs.pairs[column])
        named = self._positions([one for part in found.values() for one in part], view)
        different = [
            np.unique(np.array([named[one.answer, one.item_id] for one in found[row]], dtype=np.int64))
            if row in found
            else _NOBODY
            for row in range(len(queries))
        ]
        different = [one[one >= 0] for one in different]
        return different if any(map(len, different)) else None

    def between(self, view: GalleryView) -> list[tuple[int, int]]:
        """Positions of items that were called different: those with the picture of a search, and the item."""
        pairs = self._pairs(view.snapshot.manifest.bundle)
        if pairs is None or not len(view):
            return []
        named = self._positions(pairs.pairs, view)
        near = view.nearest(pairs.embeddings, min(_MOST_COPIES, len(view)))
        is_same = same_picture(pairs.embeddings[:, None], view.vectors(near)) & (near >= 0)
        return sorted(
            {
                (int(copy), named[one.answer, one.item_id])
                for one, copies, same in zip(pairs.pairs, near, is_same, strict=True)
                for copy in copies[same]
                if named[one.answer, one.item_id] >= 0 and one.counts_for(None)
            }
        )

    def _pairs(self, bundle: str) -> _Pairs | None:
        try:
            self._known = self._stored.get()
        except GalleryError as error:
            # Searches go on with what was known; reviewing tells the same.
            logger.error("what was called different may be another by now: %s", error)
        return self._known[1].get(bundle)

    def _read(self, rows: Rows) -> tuple[list[int], dict[str, _Pairs]]:
        """The pairs, read again only where these changed, not with each search that is kept."""
        stamp = stamp_of_different(rows)
        if stamp == self._known[0]:
            return self._known
        found: dict[str, list[DifferentPair]] = defaultdict(list)
        for one in different_pairs(rows):
            found[one.bundle].append(one)
        return stamp, {name: _Pairs(some) for name, some in found.items()}

    def _positions(self, pairs: Sequence[DifferentPair], view: GalleryView) -> dict[tuple[int, str], int]:
        """Position of the item of each pair, by what its id is now, or of the one that stays for it; -1 where
        its picture has gone.
        """
        named = [(one.item_id, one.content) for one in pairs]
        held = digests_of(self._gallery, view, sorted({item for item, _ in named}))
        names = {(one.answer, one.item_id): one.item_id for one in pairs}
        stays = stand_ins(self._gallery.path)
        there = [item in held and content in (None, held[item]) for item, content in named]
        gone = [one for one, is_there in zip(pairs, there, strict=True) if not is_there]
        contents = {one.content for one in gone if one.content}
        moved = self._ids_of(contents, view) if contents else {}
        for one in gone:
            names[one.answer, one.item_id] = stays.get(one.item_id) or moved.get(one.content or b"", "")
        ids = sorted({*names.values()})
        positions = dict(zip(ids, view.positions(ids).tolist(), strict=True))
        return {pair: positions[name] for pair, name in names.items()}

    def _ids_of(self, contents: set[bytes], view: GalleryView) -> dict[bytes, str]:
        """An id of each picture, '' where it has none; looked for once in a state of the gallery."""
        revision, known = self._ids
        if revision != view.revision or not contents <= known.keys():
            wanted = ", ".join(f"X'{one.hex()}'" for one in contents)
            ids = self._gallery.table.find(view.revision, "id", f"content_sha256 in ({wanted})")
            found = {content: name for name, content in digests_of(self._gallery, view, sorted(ids)).items()}
            known = {**(known if revision == view.revision else {}), **dict.fromkeys(contents, ""), **found}
            self._ids = view.revision, known
        return known
