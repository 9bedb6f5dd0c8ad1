"""Which of two files of one name an import means, where the one beside the importer has nothing of what is taken."""

from __future__ import annotations

import pytest

from amp_migrate.audit.program.program import Program
from tests.audit.helpers import program

TOP = "def parse(path): ...\n\n\nclass Meter: ...\n"
BESIDE = "import torch\n\nclamp = torch.clamp\n"


@pytest.mark.parametrize(
    ("text", "beside", "meant"),
    [
        ("import utils\nutils.parse(1)\nutils.Meter()\n", BESIDE, "utils.py"),
        ("from utils import parse, Meter as M\n", BESIDE, "utils.py"),
        ("import utils\nutils.clamp(1)\n", BESIDE, "cifar/utils.py"),
        ("import utils\nutils.clamp(1)\nutils.parse(1)\n", BESIDE, "cifar/utils.py"),
        ("import utils\nutils.unknown(1)\n", BESIDE, "cifar/utils.py"),
        ("import utils\n", BESIDE, "cifar/utils.py"),
        ("from utils import parse\n", "from common import *\n", "cifar/utils.py"),
    ],
)
def test_what_a_file_takes_tells(text: str, beside: str, meant: str) -> None:
    files = {"cifar/train.py": text, "cifar/utils.py": beside, "utils.py": TOP}
    found = Program({path: program(t) for path, t in files.items()})
    home = found.module_named("utils", found.modules["cifar/train.py"])
    assert home is not None
    assert home.path == meant


TRAIN = "import sys\n\nsys.path.append('/above')\nfrom whole.data import load\nfrom whole.tools import *\n"


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, True),
        ({"train.py": TRAIN.replace("sys.path.append('/above')", "")}, False),
        ({"train.py": TRAIN.replace("import load", "import load, save")}, False),
        ({"train.py": TRAIN + "import whole.other\n"}, False),
        ({"train.py": TRAIN.replace("from whole.tools import *\n", "")}, False),  # one file alone tells too little
    ],
)
def test_a_package_that_is_the_project_itself(change: dict[str, str], found: bool) -> None:
    files = {"train.py": TRAIN, "data.py": "def load(): ...\n", "tools.py": "import torch\n", **change}
    whole = Program({path: program(t) for path, t in files.items()})
    home = whole.module_named("whole.data", whole.modules["train.py"])
    assert (home is not None and home.path == "data.py") is found
