"""Fit: labelled photos of the same kind as a gallery's teach its metric more than its own labels can.

What differs within a label of theirs is laid beside what differs within one of the gallery
(`calibration.lda`), where that is surely closer to labels that were left out. What leaving items out finds
cannot tell: most have one of the same visit beside them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field, StrictBool

from vicinal.service.errors import RequestError
from vicinal.service.operations import Progress
from vicinal.service.request_fields import Body, CommandOption, QuerySource

if TYPE_CHECKING:
    from vicinal.service.operations.place import Place

STAGES = {"embed": "Embedding photos"}
# Between what photos of another kind brought and of the same, in docs/RESULTS.md, test classes among them.
_NEAR = 0.04
# Student's t for 95 %, by the degrees of freedom of that many folds and one less.
_STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)


class FitRequest(QuerySource):
    """Request to lay labelled photos beside a gallery's labels."""

    command_order = ("queries",)

    queries: Annotated[
        str | None,
        CommandOption(
            "Labelled photos of the same kind, of any source that `vicinal index` takes; none is added.",
            is_argument=True,
            metavar="PHOTOS",
        ),
    ] = None
    forget: Annotated[StrictBool, CommandOption("Use none from now on.", "--forget")] = False


class Fitted(Body):
    """Change that photos beside a gallery's labels make. The gain is in nats a value of an embedding."""

    n_photos: int = Field(description="Photos that were laid beside the gallery.")
    n_labels: int = Field(description="Their labels.")
    n_known: int = Field(description="Photos whose labels the gallery has itself, which were left out.")
    gain: float = Field(description="How much likelier they make what differs within labels left out.")
    low: float = Field(description="Lower end of the gain's 95 % interval over tenths of the labels.")
    high: float = Field(description="Its upper end.")
    is_used: bool = Field(description="Whether calibrations use them from now on.")


def run(place: Place, request: FitRequest, progress: Progress) -> Fitted | None:
    """Try the photos on the labels of the built version, and keep what they teach where it is surely near;
    None where they are to be forgotten.

    Raises:
        RequestError: Nothing is named, or both.
        NoMetricError: The gallery's labels, or those of the photos, tell no metric.
    """
    import numpy as np

    from vicinal.calibration.lda import LabelScatter, NoMetricError, label_sums
    from vicinal.service.measuring.label_folds import LabelFolds
    from vicinal.service.search.label_scores import forget_beside, keep_beside

    if (request.queries is None) != request.forget:
        raise RequestError("name labelled photos, or forget those that are used")
    place.settle()
    groups, reading = place.matcher.groups("label"), place.read_queries(request, progress)
    if reading is None:
        forget_beside(place.gallery.path)
        return None
    queries = reading.labelled()
    is_new = ~np.isin(queries.labels.astype(str), groups.names)
    if not is_new.any():
        raise RequestError("all of these photos carry labels of the gallery: add them to it")
    embeddings, labels = queries.embeddings[is_new], queries.labels[is_new].astype(str)
    names, codes = np.unique(labels, return_inverse=True)
    sums = label_sums(iter([(embeddings, codes)]), len(names), queries.embeddings.shape[1])
    scatter, own = LabelScatter.of(iter([(embeddings, codes)]), *sums), LabelFolds(groups)
    beside = LabelFolds(groups, beside=scatter)
    beside.shrinking = own.shrinking
    gains = beside.likelihoods() - own.likelihoods()
    if len(gains) < 3:
        raise NoMetricError("fewer than three labels of the gallery have two photos: nothing can be tried")
    half = _STUDENT[len(gains) - 2] * gains.std(ddof=1) / np.sqrt(len(gains))
    low, high = float(gains.mean() - half), float(gains.mean() + half)
    if low >= _NEAR:
        keep_beside(place.gallery.path, place.matcher.snapshot.manifest.bundle, scatter)
    return Fitted(
        n_photos=len(labels),
        n_labels=len(names),
        n_known=int((~is_new).sum()),
        gain=float(gains.mean()),
        low=low,
        high=high,
        is_used=low >= _NEAR,
    )


def fitted_words(found: Fitted) -> str:
    """Sentence on what came of it."""
    seen = f"by {found.gain:+.3f} a value ({found.low:+.3f} to {found.high:+.3f}; from {_NEAR:g} on)"
    near, after = ("near", "") if found.is_used else ("not surely near", " Nothing was changed.")
    return f"These photos are {near}: labels that were left out get likelier with them {seen}.{after}"
