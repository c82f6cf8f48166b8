"""A server of S3 on this machine, and the variables by which programs find it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.ports import free_port


@contextmanager
def serving_s3() -> Iterator[Any]:
    """A client of boto3 for an empty server; the environment names the server meanwhile."""
    boto3, moto = pytest.importorskip("boto3"), pytest.importorskip("moto.server")
    port = free_port()
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    endpoint = f"http://127.0.0.1:{port}"
    # What it holds belongs to the process and outlives it.
    httpx.post(f"{endpoint}/moto-api/reset").raise_for_status()
    given = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in given.items():
            patch.setenv(name, value)
        client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
        yield client
        client.close()
    server.stop()
