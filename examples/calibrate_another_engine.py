"""A threshold for any search engine: label some queries, keep its answers, calibrate their scores.

    python examples/calibrate_another_engine.py

`search` stands for the engine. With Qdrant it would be

    found = client.query_points("shop", query=vector, limit=20, with_payload=["label"]).points
    return [one.score for one in found], [one.payload["label"] for one in found]

and with pgvector, where a smaller distance is more alike, hence the sign:

    rows = db.execute("SELECT -(embedding <=> %s), label FROM shop ORDER BY 1 DESC LIMIT 20", [vector])
    return list(zip(*rows))
"""

from __future__ import annotations

import numpy as np

import vicinal

N_PRODUCTS, N_UNKNOWN, N_PHOTOS, DIM = 150, 50, 5, 64


def search(vector: np.ndarray, limit: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Scores and labels of the best items; replace it by a call of your engine."""
    scores = items @ vector
    best = np.argsort(-scores)[:limit]
    return scores[best], item_labels[best]


def photos_of(products: np.ndarray) -> np.ndarray:
    """Made-up embeddings, a photo of each product."""
    photos = centers[products] + 0.15 * rng.normal(size=(len(products), DIM))
    return photos / np.linalg.norm(photos, axis=1, keepdims=True)


rng = np.random.default_rng(7)
centers = rng.normal(size=(N_PRODUCTS + N_UNKNOWN, DIM))
centers /= np.linalg.norm(centers, axis=1, keepdims=True)
item_labels = np.repeat(np.arange(N_PRODUCTS), N_PHOTOS)
items = photos_of(item_labels)

# Photos with known labels, taken on another day than those of the gallery; some show what it does not have.
query_labels = rng.integers(N_PRODUCTS + N_UNKNOWN, size=800)
results = [search(vector) for vector in photos_of(query_labels)]

found = vicinal.calibrate_threshold(
    scores=np.stack([scores for scores, _ in results]),
    labels=np.stack([labels for _, labels in results]),
    query_labels=query_labels,
    target="fpir=5%",
)
print(found)

# From now on, no label is needed.
unknown = photos_of(rng.integers(N_PRODUCTS, N_PRODUCTS + N_UNKNOWN, size=1000))
known = photos_of(rng.integers(N_PRODUCTS, size=1000))
for name, queries in (("something the gallery has", known), ("something it does not have", unknown)):
    answered = [found.accepts(search(vector)[0]).any() for vector in queries]
    print(f"of 1,000 photos of {name}, {sum(answered)} get a match")
