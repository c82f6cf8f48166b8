"""Search embeddings that another model made, such as those of CLIP: no images, no model here.

    python examples/own_embeddings.py

The arrays are made up; put those of your model in their place. A Parquet file does as well:
`clips.index("clip.parquet", space="clip-vit-b32")`.
"""

from __future__ import annotations

import numpy as np

import vicinal

rng = np.random.default_rng(3)
N_THINGS, N_PICTURES, DIM = 80, 6, 64
centers = rng.normal(size=(N_THINGS + 1, DIM))
things = np.repeat(np.arange(N_THINGS), N_PICTURES)
embeddings = centers[things] + 0.9 * rng.normal(size=(len(things), DIM))

clips = vicinal.open_gallery("clips")
clips.index(
    vicinal.EmbeddingSource.of_arrays(
        embeddings,
        ids=[f"picture-{number:04d}" for number in range(len(things))],
        labels=[f"thing {thing}" for thing in things],
        metadata=[{"price": int(10 + thing)} for thing in things],
    ),
    space="made-up@1",
    on_conflict="replace",
)
record = clips.calibrate("fpir=5%")
print(f"{len(clips)} embeddings, threshold {record.threshold:.3f}")

known, unknown = (centers[thing] + 0.9 * rng.normal(size=DIM) for thing in (5, N_THINGS))
for name, query in (("a thing that is there", known), ("a thing that is not there", unknown)):
    answer = clips.search(query, limit=3)
    found = ", ".join(f"{match.label} ({match.score:.3f})" for match in answer.matches)
    print(f"{name}: {found or 'no match'}")
