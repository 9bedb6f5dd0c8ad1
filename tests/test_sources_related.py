from __future__ import annotations

from pathlib import Path

import pytest

from amp_migrate.sources.by_file import readers
from amp_migrate.sources.files import SourceFile
from amp_migrate.sources.project import mentions
from amp_migrate.sources.related import related
from amp_migrate.sources.related import tied as groups_of


def tied(files: dict[str, str], *seeds: str) -> set[str]:
    texts = {n: f"{text}\nimport torch\n" + "from apex import amp\n" * (n in seeds) for n, text in files.items()}
    found = tied_as_they_are(texts)
    assert set(seeds) <= found
    return found


def tied_as_they_are(files: dict[str, str]) -> set[str]:
    sources = [SourceFile(Path("/p") / name, name, text) for name, text in files.items()]
    found = related(sources, lambda source: mentions(source.text.encode()))
    return {path.removeprefix("/p/") for path in found}


@pytest.mark.parametrize(
    "statement",
    [
        "import pkg.helper",
        "import os, pkg.helper as h",
        "from pkg import helper",
        "from pkg.helper import f",
        "from pkg import (\n    other,  # not this\n    helper,\n)",
        "from pkg import other, \\\n    helper",
        "from pkg.helper import *",
        "if True:\n    from pkg import helper",
        "if True: from pkg import helper",
        "def f():\n\timport pkg.helper",
        "x = 1; import pkg.helper",
        "m = importlib.import_module('pkg.helper')",
        "from pkg import helper\r",
    ],
)
def test_every_form_of_import_ties(statement: str) -> None:
    files = {"train.py": f"{statement}\n", "pkg/__init__.py": "", "pkg/helper.py": "", "pkg/apart.py": ""}
    assert "pkg/helper.py" in tied(files, "train.py")
    assert "train.py" in tied(files, "pkg/helper.py")
    assert "pkg/apart.py" not in tied(files, "train.py")


@pytest.mark.parametrize(
    "statement", ["importlib.import_module('.'.join(names))", "import .", "import ..", "import_module('..')"]
)
def test_names_without_a_part_tie_nothing(statement: str) -> None:
    """Also where the folder itself is a package, whose name what it imports begins with."""
    known = "from pkg.helper import f\nfrom pkg.other import g\n"
    files = {"__init__.py": "", "own.py": known, "train.py": f"{statement}\n", "helper.py": "", "other.py": ""}
    assert tied(files, "train.py") == {"train.py"}


@pytest.mark.parametrize(
    "statement", ["from . import b", "from .b import f", "from .. import b", "from ..b import f", "from ..x.b import f"]
)
def test_relative(statement: str) -> None:
    files = {"a/b.py": "", "a/x/b.py": "", "a/x/here.py": f"{statement}\n", "b.py": "", "x/b.py": ""}
    up = statement.startswith("from ..") and "x" not in statement
    assert tied(files, "a/x/here.py") == {"a/x/here.py", "a/b.py" if up else "a/x/b.py"}


def test_chains_are_followed_both_ways() -> None:
    files = {
        "train.py": "import engine",
        "engine.py": "import steps",
        "steps.py": "",
        "finetune.py": "from steps import step",
        "tool.py": "import json",
        "eval.py": "import tool",
    }
    assert tied(files, "train.py") == {"train.py", "engine.py", "steps.py", "finetune.py"}


def test_packages_tie_through_their_init() -> None:
    files = {"pkg/__init__.py": "from .amp import scale", "pkg/amp.py": "", "train.py": "from pkg import scale"}
    assert tied(files, "pkg/amp.py") == set(files)


def test_the_nearest_of_many_namesakes_is_meant() -> None:
    files = {f"{p}/{name}.py": "import utils" if name == "train" else "" for p in "abc" for name in ("train", "utils")}
    assert tied(files, "a/train.py") == {"a/train.py", "a/utils.py"}


def test_a_name_found_nowhere_near_means_all_that_bear_it() -> None:
    files = {"scripts/train.py": "import helper.steps", "src/helper/steps.py": "", "lib/helper/steps.py": ""}
    assert tied(files, "scripts/train.py") == set(files)


def test_what_lies_in_another_project_ties_only_where_a_scaler_may_be_handed_on(tmp_path: Path) -> None:
    for project in ("one", "other"):
        (tmp_path / project).mkdir()
        (tmp_path / project / "requirements.txt").touch()
    texts = {
        "one/train.py": "from apex.optimizers import FusedAdam\nimport helper.steps, layers\nimport torch",
        "one/layers.py": "from apex.normalization import FusedLayerNorm",
        "other/src/helper/steps.py": "import torch",
        "other/src/use.py": "import layers, torch",
    }

    def found(texts: dict[str, str]) -> set[str]:
        sources = [SourceFile(tmp_path / name, name, text) for name, text in texts.items()]
        paths = related(sources, lambda source: mentions(source.text.encode()))
        return {Path(path).relative_to(tmp_path).as_posix() for path in paths}

    assert found(texts) == {"one/train.py", "one/layers.py"}
    scaled = texts | {"one/train.py": "from apex import amp\n" + texts["one/train.py"]}
    assert found(scaled) == {"one/train.py", "one/layers.py", "other/src/helper/steps.py"}
    (tmp_path / "other" / "requirements.txt").unlink()
    assert found(texts) == set(texts)


def test_a_module_of_the_standard_library_is_no_namesake_elsewhere() -> None:
    files = {"train.py": "import logging", "tools/serve/logging.py": "import train"}
    assert "tools/serve/logging.py" in tied(files, "train.py")  # it imports the other
    assert tied(files | {"tools/serve/logging.py": ""}, "train.py") == {"train.py"}
    assert tied({"train.py": "import logging", "logging.py": ""}, "train.py") == {"train.py", "logging.py"}


def test_what_lies_in_a_package_has_a_longer_name() -> None:
    files = {"train.py": "import utils", "lib/__init__.py": "", "lib/utils.py": "", "src/utils.py": ""}
    assert tied(files, "train.py") == {"train.py", "src/utils.py"}


@pytest.mark.parametrize(
    ("edit", "found"),
    [
        ("sys.path.insert(0, 'lib')", True),
        ("sys.path.append(os.path.join(here, 'lib'))", True),
        ("sys.path += [str(HERE), './sub/lib/']", True),
        ("LIB = here / 'lib'\nadd_path(LIB)\ndef add_path(p): sys.path.insert(0, p)", True),
        ("sys.path.insert(0, 'library')", False),
        ("print('lib')", False),
    ],
)
def test_what_lies_in_a_package_that_a_file_puts_on_the_path(edit: str, found: bool) -> None:
    files = {"run/train.py": "import init_paths\nfrom validation import validate\n", "run/init_paths.py": f"{edit}\n"}
    files |= {"run/lib/__init__.py": "", "run/lib/validation.py": "", "run/lib/other.py": ""}
    assert ("run/lib/validation.py" in tied(files, "run/train.py")) is found
    assert "run/lib/other.py" not in tied(files, "run/train.py")


def test_a_folder_without_init_is_a_package_too() -> None:
    files = {"a/train.py": "from utils import io", "a/utils/io.py": "", "b/utils/__init__.py": "", "b/utils/io.py": ""}
    assert tied(files, "a/train.py") == {"a/train.py", "a/utils/io.py"}


def test_third_parties_tie_nothing() -> None:
    assert tied({"a.py": "import json", "b.py": "import json"}, "a.py") == {"a.py"}


def test_files_that_have_nothing_to_do_with_training_tie_nothing() -> None:
    files = {
        "train.py": "from apex import amp\nimport paths",
        "paths.py": "import os",
        "report.py": "import paths\nimport torch",
        "pkg/__init__.py": "from .inner import go",
        "pkg/inner.py": "import train\noptimizer = None",
    }
    assert tied_as_they_are(files) == {"train.py", "paths.py", "pkg/inner.py", "pkg/__init__.py"}


def test_the_word_alone_is_looked_at_but_ties_nothing() -> None:
    files = {"a.py": "# the apex of the curve\nimport b", "b.py": "import torch", "c.py": "import a, torch"}
    assert tied_as_they_are(files) == {"a.py"}


def test_deprecated_names_concern_the_importers_that_use_them() -> None:
    files = {
        "compat.py": "from torch.cuda.amp import autocast",
        "pkg/__init__.py": "from compat import *",
        "train.py": "from pkg import autocast\nwith autocast(True): pass",
        "data.py": "import compat\nimport torch",
    }
    assert tied_as_they_are(files) == {"compat.py", "pkg/__init__.py", "train.py"}


def test_without_any_mention_nothing_is_read() -> None:
    assert tied_as_they_are({"a.py": "import b", "b.py": ""}) == set()


def test_importers_that_name_what_a_file_has_of_apex_are_tied() -> None:
    files = {
        "fused.py": "from apex.optimizers import (FusedAdam as Adam,  # fast\n    FusedSGD)",
        "own.py": "from fused import Adam\nclass Own(Adam): pass",
        "other.py": "import fused\nfused.FusedSGD",
        "plain.py": "import own\nown.Adamant\nown.fast as quick",
        "more.py": "import own\nown.Adam",
    }
    assert tied_as_they_are(files) == {"fused.py", "own.py", "other.py", "more.py"}


def test_whatever_imports_a_file_that_uses_apex_may_call_it() -> None:
    files = {"train.py": "from apex import amp", "main.py": "import train\ntrain.main()", "more.py": "import main"}
    assert tied_as_they_are(files) == {"train.py", "main.py"}


def test_whatever_imports_a_file_that_runs_a_network_may_call_it() -> None:
    """It has a region then, and who calls it never had Apex."""
    files = {
        "train.py": "from apex import amp\nimport gen",
        "gen.py": "import torch\n\ndef generate(model, x):\n    return model(x)\n",
        "run.py": "from gen import generate\nprint(generate('x'))",
        "names.py": "from gen import NAMES",
        "plain.py": "import names",
    }
    assert tied_as_they_are(files) == {"train.py", "gen.py", "run.py", "names.py"}


NET = "import torch\nclass Net(torch.nn.Module):\n    pass\n"


@pytest.mark.parametrize(
    "statement",
    [
        "net = importlib.import_module('nets.' + args.net)",
        "net = import_module(f'nets.{args.net}').Net()",
        "name = 'nets.%s' % args.net\nnet = import_module(name)",
        "net = __import__('nets.{}'.format(args.net), fromlist=['Net'])",
        "net = import_module(\n    'nets.' + args.net)",
    ],
)
def test_a_package_that_a_name_begins_with(statement: str) -> None:
    files = {"train.py": statement, "nets/small.py": NET, "nets/__init__.py": "", "other/net.py": NET}
    assert tied(files, "train.py") == {"train.py", "nets/small.py", "nets/__init__.py"}


@pytest.mark.parametrize(
    ("statement", "there"),
    [("import_module('.' + name, __package__)", "a/b/net.py"), ("import_module(f'..nets.{name}', p)", "a/nets/net.py")],
)
def test_a_name_that_begins_with_dots(statement: str, there: str) -> None:
    files = {"a/b/train.py": statement, "a/b/net.py": NET, "a/nets/net.py": NET, "net.py": NET}
    assert tied(files, "a/b/train.py") == {"a/b/train.py", there}


def named_by(settings: str, files: dict[str, str]) -> set[str]:
    sources = [SourceFile(Path("/p") / name, name, text) for name, text in files.items()]
    found = related(sources, lambda source: mentions(source.text.encode()), lambda: [settings])
    return {path.removeprefix("/p/") for path in found}


IMPORTING = "def find(name):\n    module = __import__(name.rpartition('.')[0])\n    return getattr(module, 'Net')\n"
BY_NAME = {
    "train.py": "from apex import amp\nfrom tools import find\nmodel = find(args.model)\n",
    "tools.py": IMPORTING,
    "nets/__init__.py": "from . import small\n",
    "nets/small.py": "from nets.parts import Part\n" + NET,
    "nets/parts.py": NET.replace("Net", "Part"),
    "nets/old.py": NET,
}


def test_a_name_that_settings_or_defaults_give() -> None:
    """The network is read, and what it imports; one that nothing names is not."""
    found = {"train.py", "tools.py", "nets/small.py", "nets/parts.py"}
    assert found <= named_by("model: nets.small.Net\nlr: 0.1\n", BY_NAME)
    assert "nets/old.py" not in named_by("model: nets.small.Net\n", BY_NAME)
    assert "nets/small.py" not in named_by("model: small\n", BY_NAME)
    default = BY_NAME | {"train.py": BY_NAME["train.py"] + "add('--model', default='nets.small')\n"}
    assert found <= named_by("", default)


def test_nor_where_no_name_is_put_together() -> None:
    plain = BY_NAME | {"tools.py": "import importlib\nfind = importlib.import_module('json').loads\n"}
    assert named_by("model: nets.small.Net\n", plain) == {"train.py", "tools.py"}


def test_settings_are_not_asked_for_where_nothing_is_loaded_by_name() -> None:
    def settings() -> list[str]:
        raise AssertionError

    files = {"train.py": "from apex import amp\nimport nets.small\n", "nets/small.py": NET}
    sources = [SourceFile(Path("/p") / name, name, text) for name, text in files.items()]
    assert len(related(sources, lambda source: mentions(source.text.encode()), settings)) == 2


SAVING = 'torch.save({"model": model.state_dict(), "amp": amp.state_dict()}, path)'
LOADING = 'kept = {k: v for k, v in torch.load(path).items() if k != "amp"}'


@pytest.mark.parametrize(
    ("script", "reads"),
    [
        (LOADING, True),
        (LOADING.replace("amp", "scale"), False),  # another key
        (LOADING.replace("torch.load", "json.load"), False),
        (LOADING + "\n" + SAVING, False),  # what saves reads its own
    ],
)
def test_a_script_that_reads_the_checkpoints_of_another_by_the_key_of_apex_is_tied_to_it(
    script: str, reads: bool
) -> None:
    files = {"pkg/train.py": SAVING, "tools/average.py": script}
    groups = groups_of([SourceFile(Path("/p") / name, name, text) for name, text in files.items()])
    assert len(groups) == (1 if reads else 2)


def test_of_several_programs_the_one_that_saves_nearest_is_meant() -> None:
    texts = {"/p/a/train.py": SAVING, "/p/a/tools/average.py": LOADING, "/p/b/train.py": SAVING}
    assert readers(texts) == {"/p/a/tools/average.py": {"/p/a/train.py"}}
