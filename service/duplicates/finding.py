"""Finding duplicates: exact copies by their bytes, changed ones by their pictures; and records of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256

import numpy as np
import pyarrow as pa

from vicinal.calibration.arrays import FloatArray, Ints
from vicinal.indexer.duplicates.candidates import CutIndex, unordered
from vicinal.indexer.duplicates.comparison import ComparedPairs, Images, compare
from vicinal.indexer.duplicates.made_copies import CHANGES, make_copy
from vicinal.indexer.errors import OriginalNotFoundError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.preparation import make_signature, make_thumbnail
from vicinal.indexer.originals import read_original
from vicinal.indexer.state.schema import documents
from vicinal.indexer.storage.item_table import as_matrix
from vicinal.indexer.views.view import GalleryView
from vicinal.models.decoding import DecodeLimits, decode_image
from vicinal.models.errors import ImageError
from vicinal.models.progress import OnProgress, no_progress
from vicinal.service.answering.different import CalledDifferent
from vicinal.service.duplicates.groups import make_groups
from vicinal.service.duplicates.record import CopyThreshold, DuplicateOptions, DuplicateRecord
from vicinal.service.duplicates.threshold import choose_threshold, threshold_sentence
from vicinal.service.duplicates.verdicts import CopyVerdicts
from vicinal.service.errors import DuplicatesNotFoundError
from vicinal.service.records import Records
from vicinal.service.words import number_of

_COLUMNS = ["id", "uri", "label", "content_sha256", "taken_at", "added_at", "sequence"]
# Photos that copies are made of; the pictures of the gallery that they are told from are all its own.
_N_MADE_OF = 150
# Of each neighbor list, beside what the pictures themselves tell.
_N_NEIGHBORS = 4
# Pairs that hang together at this score are all compared with each other.
_SURE = 0.5
# Pictures of the same pixels score as much.
_ALIKE = 0.98
# Records that are kept of a gallery.
_MOST_KEPT = 10


class DuplicateStore(Records[DuplicateRecord]):
    """Records of the gallery in a folder, of which the newest are kept."""

    model, kind = DuplicateRecord, "duplicates"
    not_found = error = DuplicatesNotFoundError

    def keep_newest(self, record: DuplicateRecord) -> None:
        """Keep a record, and remove the oldest ones beyond the ten newest."""
        with self.state.changing() as rows:
            # An attempt before this one may have kept it.
            rows.remove(documents, *self._is(record.id))
            self.keep_in(rows, record)
            # Ids sort by time.
            for one in sorted(self.ids(rows))[:-_MOST_KEPT]:
                rows.remove(documents, *self._is(one))

    def _damaged(self, record_id: str, _state: str = "") -> DuplicatesNotFoundError:
        return DuplicatesNotFoundError(self.gallery.name, record_id)


def find_duplicates(
    gallery: Gallery,
    view: GalleryView,
    options: DuplicateOptions,
    record_id: str,
    *,
    on_progress: OnProgress = no_progress,
    on_plan: Callable[[str], None] = lambda _: None,
) -> DuplicateRecord:
    """Find the copies in a gallery as it is searched; nothing is changed.

    `on_plan` is told how many comparisons there are and about how long they take, before most are made.
    """
    items = gallery.table.columns(view.revision, _COLUMNS)
    twins = _twins(items["content_sha256"].to_pylist())
    threshold, found, sizes = None, None, None
    sentence = "Only files of the same bytes were looked for"
    if gallery.space is not None:
        sentence = (
            f"gallery '{gallery.name}' holds ready embeddings and no pictures: equal embeddings were looked "
            "for, and changed copies cannot be told from items that are merely alike"
        )
    elif options.near and len(twins) > 1:
        threshold, found, sizes = _near(gallery, view, items, twins, options, on_progress, on_plan)
        sentence = threshold_sentence(threshold, n_certain=0 if found is None else len(found.pairs))
    unchanged = "same pixels" if threshold is not None and threshold.value is None else "recompressed"
    groups, notes = make_groups(items, twins, found, sizes, unchanged)
    copies = [one for group in groups for one in group.copies]
    n_exact = sum(one.kinds == ("exact",) for one in copies)
    return DuplicateRecord(
        id=record_id,
        gallery=gallery.name,
        created_at=datetime.now(UTC),
        revision=view.revision,
        n_items=len(items),
        options=options,
        threshold=threshold,
        sentence=sentence,
        notes=notes,
        n_exact=n_exact,
        n_near=len(copies) - n_exact,
        n_bytes=sum(one.n_bytes or 0 for one in copies),
        groups=groups,
    )


def _twins(contents: Sequence[bytes]) -> list[list[int]]:
    """Rows of the items of each file, of files that differ in their bytes."""
    rows: dict[bytes, list[int]] = defaultdict(list)
    for row, content in enumerate(contents):
        rows[content].append(row)
    return list(rows.values())


def _near(
    gallery: Gallery,
    view: GalleryView,
    items: pa.Table,
    twins: list[list[int]],
    options: DuplicateOptions,
    on_progress: OnProgress,
    on_plan: Callable[[str], None],
) -> tuple[CopyThreshold, ComparedPairs, Ints]:
    """The threshold, the pairs of files that reach it or, without one, have the same pixels, and the sizes of
    the thumbnails.
    """
    n = len(twins)
    sequences = items["sequence"].to_numpy()
    of_files = sequences[[rows[0] for rows in twins]]
    rng = np.random.default_rng(options.seed)
    chosen = np.sort(rng.choice(n, min(n, _N_MADE_OF), replace=False))
    pictures, originals = _read(gallery, view.revision, of_files, chosen, on_progress)
    index = CutIndex(pictures.signatures)
    near = index.candidates(pictures.signatures, own=True, on_progress=on_progress)
    pairs = unordered(near, _neighbor_pairs(view, sequences, twins))
    # First, so that what is said of the comparisons, by far the longest, holds for all that is left.
    made = _made_scores(index, pictures, chosen, originals, rng, on_progress)
    compared = compare(
        pictures,
        pictures,
        pairs,
        on_progress,
        on_estimate=lambda n_pairs, seconds: on_plan(_plan(n_pairs, n, seconds)),
    )
    different = _called_different(gallery, view, sequences, twins)
    different |= _called_no_copies(gallery, items["content_sha256"].to_pylist(), twins)
    compared = _without(_closed(pictures, compared), different)
    threshold = choose_threshold(made, compared.scores, options.precision)
    if threshold.value is None:
        return threshold, _of_same_pixels(gallery, view, items, twins, compared), pictures.sizes
    return threshold, compared[np.flatnonzero(compared.scores >= threshold.value)], pictures.sizes


def _of_same_pixels(
    gallery: Gallery, view: GalleryView, items: pa.Table, twins: list[list[int]], compared: ComparedPairs
) -> ComparedPairs:
    """The pairs whose files are at hand and decode to the same pixels, which is certain."""

    @cache
    def pixels(place: int) -> bytes | None:
        with suppress(OriginalNotFoundError, ImageError):
            item_id, limits = items["id"][twins[place][0]].as_py(), DecodeLimits()
            original = read_original(gallery, view, item_id, most=limits.max_bytes)
            image = decode_image(original, limits=limits)
            return sha256(f"{image.size}".encode() + image.tobytes()).digest()
        return None

    alike = np.flatnonzero(compared.scores >= _ALIKE).tolist()
    pairs = ((one, *compared.pairs[one].tolist()) for one in alike)
    kept = [one for one, first, second in pairs if pixels(first) and pixels(first) == pixels(second)]
    return compared[np.array(kept, np.int64)]


def _plan(n_pairs: int, n_pictures: int, seconds: float) -> str:
    about = timedelta(seconds=max(1, round(seconds)))
    return f"{number_of(n_pairs, 'comparison')} of {number_of(n_pictures, 'photo')} take about {about}"


def _read(
    gallery: Gallery,
    revision: int,
    sequences: Ints,
    chosen: Ints,
    on_progress: OnProgress,
) -> tuple[Images, list[bytes]]:
    """Images of some items, and the thumbnails of some of them."""
    pictures, originals, done = Images(len(sequences)), {}, 0
    wanted = set(chosen.tolist())
    for batch in gallery.table.batches(revision, ["sequence", "thumbnail", "signature"]):
        rows = pa.Table.from_batches([batch])
        own = rows["sequence"].to_numpy()
        places = np.minimum(np.searchsorted(sequences, own), len(sequences) - 1)
        kept = np.flatnonzero(sequences[places] == own)
        signatures = as_matrix(rows["signature"])
        for row in kept.tolist():
            place, thumbnail = int(places[row]), rows["thumbnail"][row].as_py()
            if thumbnail is None:
                continue
            pictures.put(place, thumbnail, signatures[row])
            if place in wanted:
                originals[place] = thumbnail
        done += len(kept)
        on_progress("pictures", done, len(sequences))
    return pictures, [originals[place] for place in chosen.tolist()]


def _neighbor_pairs(view: GalleryView, sequences: Ints, twins: list[list[int]]) -> Ints:
    """Files that are nearest in the embedding."""
    place_of_row = np.empty(len(sequences), np.int64)
    for place, rows in enumerate(twins):
        place_of_row[rows] = place
    positions = view.positions_of_sequences(sequences)
    row_of_position = np.full(view.n_positions + 1, -1)
    # The last entry stands for the padding, which -1 points to.
    row_of_position[positions] = np.arange(len(sequences))
    firsts = positions[[rows[0] for rows in twins]]
    listed = row_of_position[view.neighbor_positions(firsts)[:, :_N_NEIGHBORS]]
    own = np.broadcast_to(np.arange(len(listed))[:, None], listed.shape)
    there = listed >= 0
    return np.stack([own[there], place_of_row[listed[there]]], axis=1)


def _called_different(
    gallery: Gallery, view: GalleryView, sequences: Ints, twins: list[list[int]]
) -> set[tuple[int, int]]:
    """Files that a person called different, in ascending order."""
    pairs = np.array(CalledDifferent(gallery).between(view), np.int64).reshape(-1, 2)
    place_of_row = {row: place for place, rows in enumerate(twins) for row in rows}
    rows = np.searchsorted(sequences, view.sequences(pairs))
    places = [(place_of_row[first], place_of_row[second]) for first, second in rows.tolist()]
    return {(min(pair), max(pair)) for pair in places}


def _called_no_copies(
    gallery: Gallery, contents: Sequence[bytes], twins: list[list[int]]
) -> set[tuple[int, int]]:
    """Files that a person called no copies of each other, in ascending order."""
    place_of = {contents[rows[0]].hex(): place for place, rows in enumerate(twins)}
    pairs = ([place_of.get(one, -1) for one in pair] for pair in CopyVerdicts(gallery).contents())
    return {(min(pair), max(pair)) for pair in pairs if min(pair) >= 0}


def _without(compared: ComparedPairs, different: set[tuple[int, int]]) -> ComparedPairs:
    is_left = [(min(pair), max(pair)) not in different for pair in compared.pairs.tolist()]
    return compared[np.flatnonzero(is_left)] if different else compared


def _closed(pictures: Images, compared: ComparedPairs) -> ComparedPairs:
    """The pairs, and those of them that have a partner in common."""
    sure = compared.pairs[compared.scores >= _SURE]
    partners: dict[int, set[int]] = defaultdict(set)
    for first, second in sure.tolist():
        partners[first].add(second)
        partners[second].add(first)
    apart = [(a, b) for one in partners.values() for a in one for b in one if a < b and b not in partners[a]]
    if not apart:
        return compared
    known = set(map(tuple, compared.pairs.tolist()))
    further = np.array([pair for pair in sorted(set(apart)) if pair not in known], np.int64).reshape(-1, 2)
    return ComparedPairs.joined([compared, compare(pictures, pictures, further)])


def _made_scores(
    index: CutIndex,
    pictures: Images,
    chosen: Ints,
    originals: Sequence[bytes],
    rng: np.random.Generator,
    on_progress: OnProgress,
) -> FloatArray:
    """(photos, copies) scores of made copies with their photos; 0 where the photo is no candidate."""
    n_changes = len(CHANGES)
    copies = Images(len(chosen) * n_changes)
    for number, original in enumerate(originals):
        image = decode_image(original)
        for place, change in enumerate(CHANGES):
            copy = decode_image(make_copy(image, change, rng))
            copies.put(n_changes * number + place, make_thumbnail(copy), make_signature(copy))
        on_progress("made copies", number + 1, len(chosen))
    pairs = index.candidates(copies.signatures)
    pairs = pairs[np.repeat(chosen, n_changes)[pairs[:, 0]] == pairs[:, 1]]
    compared = compare(copies, pictures, pairs)
    scores = np.zeros(len(chosen) * n_changes, np.float32)
    scores[compared.pairs[:, 0]] = compared.scores
    return scores.reshape(len(chosen), n_changes)
