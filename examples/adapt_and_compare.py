"""Adapt the model to your photos, and use it only if it is better on labels that it did not see.

    pip install -c constraints.txt '.[cpu,train]'    # from a checkout
    python examples/adapt_and_compare.py PHOTOS

The gallery is searched as before until the last line: the new version waits, is compared on the same photos,
each model with its own threshold, and is used where that is recommended.
"""

from __future__ import annotations

import sys
from pathlib import Path

import vicinal

photos, minutes = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 15.0
bundles = Path("bundles")
shop = vicinal.open_gallery("shop", bundles_dir=bundles)
shop.index(photos)
shop.calibrate("fpir=5%")

report = shop.fit(bundles / "mine", minutes=minutes)
before, now = 100 * report.found_before.value, 100 * report.found_after.value
print(f"of 100 photos of labels that it did not see, {before:.0f} were found before, {now:.0f} now")

waiting = shop.index(bundle="mine", activate=False)
compared = shop.compare(waiting.version, target="fpir=5%")
print(compared.reason)
shop.use(compared)
print(f"searched now: version {shop.matcher.snapshot.manifest.version}")
