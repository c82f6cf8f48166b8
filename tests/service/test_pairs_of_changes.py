"""What two changes of a gallery do to each other: each one before each other, and what must hold after both.

Nothing that a person said is lost; what was removed or set aside is neither found nor asked about; a
threshold names the record that it rests on.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import pytest

import vicinal
from tests.service.kept_searches import keep_searches
from tests.service.types import View
from vicinal.calibration import Target
from vicinal.indexer.jobs.changes import Patch, patch_items
from vicinal.indexer.jobs.compaction import compact
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.state import state_of
from vicinal.indexer.state.schema import documents
from vicinal.indexer.transfer.archive import export_gallery, import_gallery
from vicinal.indexer.transfer.moving import rename_gallery
from vicinal.models.bundle import ModelBundle
from vicinal.service.answering.store import SearchStore
from vicinal.service.duplicates.finding import DuplicateStore
from vicinal.service.duplicates.verdicts import CopyVerdicts
from vicinal.service.labelling.session import LabelSession
from vicinal.service.measuring.records.store import CalibrationStore
from vicinal.service.operations import Progress, duplicates
from vicinal.service.operations.place import Place

REMOVED, ASIDE, PATCHED, COPY = "plain/view 2.png", "blé/view 1.png", "a+b/view 3.png", "x_y/view 0.png"
ANSWERED, CALLED_WRONG = 2, 6


@dataclass
class Shop:
    """A gallery, what was done to it, and what persons said of it by now."""

    data_dir: Path
    bundle: Path
    view: View
    name: str = "shoes"
    done: list[str] = field(default_factory=list)
    answers: set[tuple[str, str, str | None, str | None]] = field(default_factory=set)
    hidden: tuple[str, str] | None = None  # Kept search, and the item that is no match of it
    told: list[tuple[int, str]] = field(default_factory=list)
    calibration: str | None = None

    @property
    def opened(self) -> vicinal.LocalGallery:
        return vicinal.open_gallery(
            self.name, data_dir=self.data_dir, bundle=self.bundle, device="cpu", threads=1
        )

    @property
    def place(self) -> Place:
        opened = self.opened
        return Place(opened.bundles, opened.gallery)

    @property
    def reader(self) -> GalleryReader:
        return GalleryReader(self.opened.gallery)


def add(shop: Shop) -> None:
    file = shop.data_dir / "new.png"
    shop.view(3, 40).save(file)
    shop.opened.add(file, label="o'brien")


def remove(shop: Shop) -> None:
    shop.opened.remove([REMOVED])


def set_aside(shop: Shop) -> None:
    shop.opened.set_aside([ASIDE], "blurred")


def patch(shop: Shop) -> None:
    patch_items(shop.reader, {PATCHED: Patch(label="by hand", metadata={"note": "mine"})})


def answer(shop: Shop) -> None:
    given = shop.opened.answer(f"{ANSWERED:032x}", label="größe 42")
    shop.answers.add((given.search_id, given.kind, given.item_id, given.label))


def wrong(shop: Shop) -> None:
    opened, search = shop.opened, f"{CALLED_WRONG:032x}"
    best = SearchStore(opened.gallery.path).get(search).candidates[0].id
    given = opened.answer(search, wrong=best)
    shop.answers.add((given.search_id, given.kind, given.item_id, given.label))
    shop.hidden = search, best


def compaction(shop: Shop) -> None:
    compact(shop.reader)


def roll_back(shop: Shop) -> None:
    shop.opened.activate(1)


def restore(shop: Shop) -> None:
    opened, root, archive = shop.opened, shop.opened.gallery.path.parent, io.BytesIO()
    export_gallery(opened.gallery, archive, with_searches=True)
    opened.delete()
    archive.seek(0)
    import_gallery(root, archive)


def import_elsewhere(shop: Shop) -> None:
    gallery, archive = shop.opened.gallery, io.BytesIO()
    export_gallery(gallery, archive, with_searches=True)
    archive.seek(0)
    import_gallery(gallery.path.parent, archive, "imported")
    shop.name = "imported"


def rename(shop: Shop) -> None:
    rename_gallery(shop.opened.gallery, "renamed")
    shop.name = "renamed"


def calibrate(shop: Shop) -> None:
    shop.calibration = shop.opened.calibrate("fpir=10%").id


def label(shop: Shop) -> None:
    matcher = shop.opened.matcher
    if matcher.pipeline.group is not None:
        return  # Labels are decided, of which answers about pairs say nothing
    session = LabelSession.start(matcher, Target.parse("precision=95%"))
    shop.told = [(session.questions()[0].pair, "different")]
    session.answer(0, same=False)


def find_copies(shop: Shop) -> None:
    place = shop.place
    found = duplicates.run(place, duplicates.DuplicateOptions(near=False), Progress())
    DuplicateStore(place.gallery.path).keep_newest(found)


CHANGES: tuple[Callable[[Shop], None], ...] = (
    add,
    remove,
    set_aside,
    patch,
    answer,
    wrong,
    compaction,
    roll_back,
    restore,
    import_elsewhere,
    rename,
    calibrate,
    label,
    find_copies,
)


@pytest.fixture(scope="module")
def before(
    tmp_path_factory: pytest.TempPathFactory, base_dir: Path, tiny_bundle: ModelBundle, view: View
) -> Shop:
    """A shop in its second version, with kept searches and a verdict; each test changes a copy."""
    data_dir = Path(shutil.copytree(base_dir, tmp_path_factory.mktemp("shop") / "data"))
    made = Shop(data_dir, tiny_bundle.path, view)
    patch_items(made.reader, {COPY: Patch(label="x_y", metadata={"shelf": 3})})
    compact(made.reader)
    opened = made.opened
    keep_searches(opened.matcher, view, n=8)
    CopyVerdicts(opened.gallery).add(opened.matcher.view, COPY, ["x_y/view 1.png"], by="anna")
    return made


@pytest.fixture
def shop(before: Shop, tmp_path: Path) -> Shop:
    data_dir = Path(shutil.copytree(before.data_dir, tmp_path / "data"))
    return Shop(data_dir, before.bundle, before.view)


def names_of(change: object) -> str:
    return getattr(change, "__name__", "")


@pytest.mark.parametrize(("first", "second"), list(product(CHANGES, CHANGES)), ids=names_of)
def test_what_two_changes_do_to_each_other(
    shop: Shop, first: Callable[[Shop], None], second: Callable[[Shop], None]
) -> None:
    for change in (first, second):
        if change.__name__ in shop.done and change in (remove, set_aside, import_elsewhere, rename):
            continue  # Once is all there is
        change(shop)
        shop.done.append(change.__name__)
    assert [*complaints(shop)] == []


def complaints(shop: Shop) -> Iterator[str]:
    opened = shop.opened
    matcher = opened.matcher
    gone = {one for one, what in ((REMOVED, "remove"), (ASIDE, "set_aside")) if what in shop.done}
    seen = set(found_by(opened, shop.view))
    if seen & gone:
        yield f"found though gone: {seen & gone}"
    if "set_aside" in shop.done and [one.id for one in opened.aside] != [ASIDE]:
        yield "no item is set aside any more"
    if "add" in shop.done and shop.done[-1] != "roll_back" and "new.png" not in seen:
        yield "what was added is not found"
    asked = opened.review.next(8, by="berta").questions
    if {one.id for question in asked for one in question.candidates} & gone:
        yield "a person is asked about what is gone"
    store = SearchStore(opened.gallery.path)
    kept = {(one.search, one.kind, one.item_id, one.label) for one in store.answers()}
    if kept != shop.answers:
        yield f"answers: {kept} of {shop.answers}"
    if shop.hidden is not None:
        search, item = shop.hidden
        again = opened.search(store.get(search).embedding, limit=100, include_candidates=True)
        if item in [one.id for one in (*again.matches, *again.candidates)]:
            yield "what was called wrong is found again"
    if [one.first for one in CopyVerdicts(opened.gallery).all()] != [COPY]:
        yield "a verdict on copies is lost"
    yield from complaints_of_label(shop, gone)
    if "patch" in shop.done and shop.done[-1] != "roll_back":
        (item,) = matcher.view.items([matcher.view.position(PATCHED)])
        if (item["label"], item["metadata"].get("note")) != ("by hand", "mine"):
            yield f"the label or note set by hand is lost: {item}"
    if shop.calibration is not None:
        yield from complaints_of_promise(shop)


def found_by(opened: vicinal.LocalGallery, view: View) -> Iterator[str]:
    """Ids that any search finds."""
    for answer in opened.search_many([view(3, 40), view(6, 2)], limit=100, include_candidates=True):
        yield from (one.id for one in (*answer.matches, *answer.candidates))


def complaints_of_label(shop: Shop, gone: set[str]) -> Iterator[str]:
    opened = shop.opened
    kind = documents.c.kind == "labelling"
    with state_of(opened.gallery.path).reading() as rows:
        ids = rows.values(documents.c.id, kind, documents.c.id != "", order_by=[documents.c.id])
    sessions = [LabelSession(opened.gallery, one, opened.matcher.view) for one in ids]
    said = [[(one.pair, one.said) for one in session.answers()] for session in sessions]
    if shop.told and said[-1:] != [shop.told]:
        yield f"an answer about a pair is lost: {said}"
    session = LabelSession.current(opened.matcher)
    if session is not None:
        pairs = {one for question in session.state().questions for one in question.items}
        if pairs & gone:
            yield f"a person is asked about pairs with what is gone: {pairs & gone}"


def complaints_of_promise(shop: Shop) -> Iterator[str]:
    opened = shop.opened
    threshold = opened.threshold
    records = CalibrationStore(opened.gallery.path)
    if shop.calibration not in {one.id for one in records.in_use({1, 2, 3})} | records.in_force():
        yield "the record of a calibration is lost"
    if threshold.calibration not in (None, shop.calibration):
        yield f"the threshold names another record: {threshold}"
    if threshold.calibration is None and shop.done[-1] != "roll_back":
        yield f"the threshold rests on nothing: {threshold}"
    if threshold.calibration and not opened.promise:
        yield "nothing is promised"
