"""Photos that are no files of their own: indexed from a bucket, shards and data sets."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.hub_server import put_dataset
from tests.s3_server import serving_bucket
from tests.service.types import Encode, Fail, Run, View
from tests.web_server import WebServer, serving

pytestmark = pytest.mark.usefixtures("cli_environment")
LABELS = ("milk", "bread", "salt")


@pytest.fixture
def web() -> Iterator[WebServer]:
    with serving() as server:
        yield server


def best(run: Run, picture: Path) -> dict[str, str]:
    answer = run("search", picture, "-g", "shop", "--candidates", "--json").stdout
    return dict(json.loads(answer)["candidates"][0])


def test_what_is_on_the_web_is_not_read(fail: Fail) -> None:
    assert "fetch it with img2dataset" in fail("index", "https://a.example/photos", "-g", "shop")


@pytest.mark.slow
def test_a_bucket_of_photos_is_indexed_searched_and_added_to(
    run: Run, fail: Fail, tmp_path: Path, view: View, encode: Encode
) -> None:
    with serving_bucket() as (client, bucket):
        for number, label in enumerate(LABELS):
            for one in range(2):
                key = f"photos/{label}/{one}.png"
                client.put_object(Bucket=bucket, Key=key, Body=encode(view(number, one)))
        client.put_object(Bucket=bucket, Key="photos/list.xlsx", Body=b"words")
        output = run("index", f"s3://{bucket}/photos", "-g", "shop").stdout
        assert output.splitlines()[:2] == [
            "6 items with 3 labels; 2 items a label",
            "  files that are not read: 1 .xlsx",
        ]
        assert "Nothing to do" in run("index", f"s3://{bucket}/photos/", "-g", "shop").stdout
        view(0, 9).save(tmp_path / "query.png")
        found = best(run, tmp_path / "query.png")
        assert (found["label"], found["uri"].rpartition("/")[0]) == ("milk", f"s3://{bucket}/photos/milk")
        assert found["id"].startswith("photos/milk/")
        client.put_object(Bucket=bucket, Key="photos/salt/7.png", Body=encode(view(2, 7)))
        added = run("gallery", "add", "shop", f"s3://{bucket}/photos").stdout
        assert "Added 1 item, replaced 0, skipped 0, unchanged 6; gallery shop holds 7" in added
        assert f"'s3://{bucket}/none' cannot be listed" in fail("index", f"s3://{bucket}/none", "-g", "other")
        # From the stored images, with another index; and with another bundle they are read from the bucket.
        run("index", "-g", "shop", "--index", "SQ8")
        assert best(run, tmp_path / "query.png")["label"] == "milk"


@pytest.mark.slow
def test_a_data_set_of_the_hub_is_indexed_and_searched(
    run: Run,
    fail: Fail,
    tmp_path: Path,
    web: WebServer,
    view: View,
    encode: Encode,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setenv("HF_ENDPOINT", web.url(""))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    stream = io.BytesIO()
    table = pa.table({"image": [{"bytes": encode(view(i % 3, i))} for i in range(6)], "label": [*LABELS] * 2})
    pq.write_table(table, stream)
    put_dataset(web, "shop/toys", {"data/train.parquet": stream.getvalue()})
    assert "6 items with 3 labels" in run("index", "hf:shop/toys", "-g", "shop").stdout
    view(2, 9).save(tmp_path / "query.png")
    found = best(run, tmp_path / "query.png")
    assert (found["label"], found["id"].split(":")[0]) == ("salt", "toys/data/train")
    assert "Nothing to do" in run("index", "hf:shop/toys", "-g", "shop").stdout
    assert "the hub has no data set 'hf:shop/none'" in fail("index", "hf:shop/none", "-g", "shop")
