"""docs/shim.md lists every redirection."""

from __future__ import annotations

import re
from pathlib import Path

import torch  # noqa: F401 - importing it installs the redirection

from amp_migrate.shim.redirect import products
from amp_migrate.shim.redirect.patching import originals

PAGE = (Path(__file__).parents[3] / "docs" / "shim.md").read_text()


# A name may be listed without the module it is in; these modules repeat names of another one.
MODULES = re.compile(r"^torch\.(cuda\.(memory|graphs|random)\.|accelerator\.|cuda\.|Tensor\.|nn\.functional\.)?")


def test_replaced_names_are_listed() -> None:
    listed = set(re.findall(r"`([\w.]+)(?:\(\))?`", PAGE))
    missing = [name for name in originals if not {name, MODULES.sub("", name)} & listed]
    assert len(originals) > 250
    assert missing == []


def test_kernels_are_listed() -> None:
    for name in (*products.PRODUCTS, *products.NORMS, *(conv.partition(".")[0] for conv in products.CONVOLUTIONS)):
        assert f"`{name}`" in PAGE
