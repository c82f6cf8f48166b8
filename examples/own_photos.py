"""Index a folder of your photos, calibrate, and search it.

    python examples/own_photos.py PHOTOS QUERY.jpg

PHOTOS holds a folder a product, a person or a place. The gallery is kept in `~/.vicinal`, or where
VICINAL_DATA_DIR says; the second run embeds only what is new.
"""

from __future__ import annotations

import sys

import vicinal

photos, query = sys.argv[1:]
shop = vicinal.open_gallery("shop")

made = shop.index(photos)
print(f"version {made.version}: {made.n_items} photos of {made.n_labels} labels")

record = shop.calibrate("fpir=5%")
print(f"threshold {record.threshold:.3f}")

answer = shop.search(query)
for match in answer.matches:
    print(f"{match.score:.3f}  {match.label}  {match.id}")
if answer.no_match:
    print("No match: the gallery has nothing like it")
