"""A server of S3 on this machine, and the variables by which programs find it.

What such servers hold is that of the whole process, and is still there when the next one starts: each has a
bucket of its own, and none throws all of it away while another's tests may still come.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.ports import free_port


@contextmanager
def serving_bucket() -> Iterator[tuple[Any, str]]:
    """A client of boto3, and the name of an empty bucket; the environment names the server meanwhile."""
    boto3, moto = pytest.importorskip("boto3"), pytest.importorskip("moto.server")
    port = free_port()
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    endpoint = f"http://127.0.0.1:{port}"
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
        bucket = f"bucket-{secrets.token_hex(4)}"
        client.create_bucket(Bucket=bucket)
        yield client, bucket
        client.close()
    server.stop()
