"""What an absolute import finds beside the file: Python's own rule, over folders that share file names."""

from __future__ import annotations

from pathlib import Path

import pytest

from amp_migrate.reading.program.sibling_imports import SiblingImports

TREE = {
    "cifar/train.py": "cifar.train",
    "cifar/utils.py": "cifar.utils",
    "mnist/train.py": "mnist.train",
    "mnist/utils/__init__.py": "mnist.utils",
    "mnist/utils/data.py": "mnist.utils.data",
    "utils.py": "utils",
    "pkg/__init__.py": "pkg",
    "pkg/run.py": "pkg.run",
    "pkg/utils.py": "pkg.utils",
    "pkg/logging.py": "pkg.logging",
    "pkg/losses.py": "pkg.losses",
    "old/torch.py": "old.torch",
    "old/apex/amp/frontend.py": "old.apex.amp.frontend",
    "old/train.py": "old.train",
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("cifar/train.py", {"train", "utils"}),
        ("mnist/train.py", {"train", "utils"}),
        ("mnist/utils/__init__.py", {"data"}),  # of a package: not the project's own top level
        ("utils.py", set()),
        ("pkg/run.py", {"run", "losses"}),  # utils is the project's, logging is Python's
        ("old/train.py", {"train"}),
    ],
)
def test_names_found_in_the_folder(path: str, expected: set[str]) -> None:
    siblings = SiblingImports({Path(p): name for p, name in TREE.items()})
    assert siblings.of(Path(path)) == expected


TREES = {
    "one/src/tasks/run.py": "one.src.tasks.run",
    "one/src/utils/save.py": "one.src.utils.save",
    "two/src/tasks/run.py": "two.src.tasks.run",
    "two/src/utils/save.py": "two.src.utils.save",
    "two/pkg/__init__.py": "two.pkg",
    "two/pkg/sub/run.py": "two.pkg.sub.run",
    "two/pkg/helpers.py": "two.pkg.helpers",
    "tools/run.py": "tools.run",
    "nets/nets.py": "nets.nets",
    "nets/losses.py": "nets.losses",
}


@pytest.mark.parametrize(
    ("path", "name", "meant"),
    [
        ("one/src/tasks/run.py", "src.utils.save", "one.src.utils.save"),
        ("two/src/tasks/run.py", "src.utils.save", "two.src.utils.save"),
        ("two/src/tasks/run.py", "src.utils", "two.src.utils"),
        ("two/src/tasks/run.py", "src.missing", "src.missing"),
        ("two/src/tasks/run.py", "json", "json"),
        ("two/pkg/sub/run.py", "helpers", "helpers"),  # a package's folder is not on the path
        ("two/pkg/sub/run.py", "pkg.helpers", "two.pkg.helpers"),
        ("tools/run.py", "src.utils.save", "src.utils.save"),  # lies in neither tree
        ("one/src/tasks/run.py", "run", "one.src.tasks.run"),
        ("nets/nets.py", "nets.losses", "nets.losses"),  # the file beside it has no such part
    ],
)
def test_a_tree_of_its_own_is_meant_from_within(path: str, name: str, meant: str) -> None:
    siblings = SiblingImports({Path(p): n for p, n in TREES.items()})
    assert siblings.meant(Path(path), name) == meant


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("checkout.cifar.utils", "cifar.utils"),
        ("above.checkout.utils", "utils"),
        ("checkout.nowhere", "checkout.nowhere"),
        ("above.utils", "above.utils"),
        ("other.utils", "other.utils"),
    ],
)
def test_a_name_by_way_of_the_folder_of_the_checkout(name: str, expected: str) -> None:
    found = SiblingImports({Path("/home/above/checkout", path): known for path, known in TREE.items()})
    assert found.meant(Path("/home/above/checkout/cifar/train.py"), name) == expected


TOP = "def parse(path): ...\n\n\nclass Meter: ...\n"
TAKEN = {
    "import utils\nutils.parse(1)\nutils.Meter()\n": "utils",  # which the one beside the file has not
    "from utils import parse, Meter as M\nfrom other import x\n": "utils",
    "from utils import (\n    parse,\n    Meter,\n)\n": "utils",
    "import utils\nutils.clamp(1)\n": "cifar.utils",
    "import utils\nutils.clamp(1)\nutils.parse(1)\n": "cifar.utils",  # one is missing either way: Python's own rule
    "import utils\nutils.unknown(1)\n": "cifar.utils",
    "import utils\n": "cifar.utils",
    "from utils import *\nparse(1)\n": "cifar.utils",  # which names it takes is not written
    "from utils import parse\nfrom utils import *\n": "utils",
    "from utils import (parse, (Meter))\n": "cifar.utils",  # whatever a text that does not parse has there
}


@pytest.mark.parametrize(("text", "meant"), list(TAKEN.items()))
def test_what_a_file_takes_tells_which_of_two_it_means(text: str, meant: str) -> None:
    files = {"cifar/train.py": text, "cifar/utils.py": "import torch\n\nclamp = torch.clamp\n", "utils.py": TOP}
    names = {Path(p): p.removesuffix(".py").replace("/", ".") for p in files}
    siblings = SiblingImports(names, {Path(p): t for p, t in files.items()})
    assert siblings.meant(Path("cifar/train.py"), "utils") == meant


def test_the_file_beside_may_have_it_from_another() -> None:
    files = {"cifar/train.py": "from utils import parse\n", "cifar/utils.py": "from common import *\n", "utils.py": TOP}
    names = {Path(p): p.removesuffix(".py").replace("/", ".") for p in files}
    siblings = SiblingImports(names, {Path(p): t for p, t in files.items()})
    assert siblings.meant(Path("cifar/train.py"), "utils") == "cifar.utils"
