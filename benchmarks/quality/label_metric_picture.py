"""What a gallery's own metric sees: photos in the two directions that matter, as `docs/images/labels.png`.

On the left stand embeddings as the model gave them: in the direction in which photos of one label differ
most, and in that in which labels differ most. On the right the same photos where the metric has made what
differs within a label as wide in all directions. Ellipses hold 95 % of what differs within the mean label,
and between labels, in that plane, were both normally distributed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse

from benchmarks.quality.protocol_embeddings import PartEmbeddings
from vicinal.calibration.arrays import Floats, Ints
from vicinal.calibration.lda import LabelMetric, LabelScatter, label_sums
from vicinal.models.bundle import ModelBundle, default_bundle_path
from vicinal.models.embedder import Embedder

IMAGE = Path(__file__).resolve().parents[2] / "docs" / "images" / "labels.png"
MOST_LABELS = 7
# Two standard deviations and a half hold 95 % of a normal distribution in a plane.
WIDTHS = 2.45


def ellipse(covariance: Floats, center: Floats, **look: str) -> Ellipse:
    """Ellipse of a (2, 2) covariance."""
    values, vectors = np.linalg.eigh(covariance)
    width, height = 2 * WIDTHS * np.sqrt(np.maximum(values, 0.0))
    angle = float(np.degrees(np.arctan2(vectors[1, 0], vectors[0, 0])))
    return Ellipse((center[0], center[1]), width, height, angle=angle, fill=False, **look)


def draw(axes: Axes, points: Floats, codes: Ints, within: Floats, between: Floats) -> None:
    """(n, 2) photos by their labels, with both ellipses."""
    for code in np.unique(codes)[:MOST_LABELS]:
        own = points[codes == code]
        axes.scatter(own[:, 0], own[:, 1], s=9, alpha=0.7)
    axes.add_patch(ellipse(between, points.mean(axis=0), linestyle="--", label="between labels"))
    axes.add_patch(ellipse(within, points.mean(axis=0), linestyle="-", label="within a label"))
    axes.autoscale_view()
    axes.legend(loc="lower right", frameon=False)
    axes.set_aspect("equal", adjustable="datalim")


def main() -> None:
    """Index one part of a set in memory and draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="protocol folder of one set")
    parser.add_argument("--part", default="calibration")
    arguments = parser.parse_args()
    embedder = Embedder(ModelBundle.open(default_bundle_path()))
    photos = PartEmbeddings.of(arguments.data, arguments.part, embedder, None).of_role("gallery")
    codes = np.unique(photos.labels.astype(str), return_inverse=True)[1]
    sums = label_sums(iter([(photos.embeddings, codes)]), int(codes.max()) + 1, photos.embeddings.shape[1])
    scatter = LabelScatter.of(iter([(photos.embeddings, codes)]), *sums)
    center, within, between = scatter.covariances()
    widest = np.linalg.eigh(within)[1][:, -1]
    apart = np.linalg.eigh(between - np.outer(widest, widest @ between))[1][:, -1]
    plane = np.linalg.qr(np.stack([widest, apart], axis=1))[0]
    metric = LabelMetric.of(scatter)
    # Within a label the metric's own space is round: the same directions, seen there.
    seen = np.linalg.qr(metric.projection @ plane)[0]
    figure = Figure(figsize=(9.6, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    draw(
        left, (photos.embeddings - center) @ plane, codes, plane.T @ within @ plane, plane.T @ between @ plane
    )
    left.set(
        title="As the model gave them",
        xlabel="where photos of one label differ most",
        ylabel="where labels differ most",
    )
    p = metric.projection
    inside = seen.T @ p @ within @ p.T @ seen
    outside = seen.T @ p @ between @ p.T @ seen
    draw(right, metric.projected(photos.embeddings) @ seen, codes, inside, outside)
    right.set(
        title="As the gallery's metric sees them", xlabel="the same, whitened", ylabel="the same, whitened"
    )
    figure.savefig(IMAGE, dpi=120)
    print(IMAGE)


if __name__ == "__main__":
    main()
