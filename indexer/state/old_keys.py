"""Keys of before there were rows: `keys/keys.json`, sealed, and the mark `audit/keys-are-on`."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from vicinal.indexer.state.rows import Rows
from vicinal.indexer.state.schema import facts, keys
from vicinal.models.configs.sealed_json import unsealed

logger = logging.getLogger(__name__)


def bring_in_keys(folder: Path, rows: Rows) -> None:
    """Make rows of all keys. Where the file is damaged there is none, and calls need one all the same."""
    path, is_on = folder / "keys" / "keys.json", (folder / "audit" / "keys-are-on").exists()
    if path.exists():
        try:
            kept = json.loads(unsealed(path.read_bytes()))
            found = [{"id": one["id"], "content": json.dumps(one)} for one in kept["keys"]]
            is_on = kept["on"] is not False
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning(
                "the keys in '%s' are damaged, and none is accepted: %s; make new ones", path, error
            )
            found, is_on = [], True
        rows.add(keys, *found)
    rows.add(facts, {"name": "keys", "value": "on" if is_on else "off"})
