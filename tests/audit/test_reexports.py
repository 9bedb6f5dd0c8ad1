"""What the program's own files hand on of Apex's and torch's is known by its full name wherever it is imported from."""

from __future__ import annotations

import ast

import pytest

from amp_migrate.audit import audit
from amp_migrate.audit.program.program import Program
from tests.audit.helpers import doubts_of, program, told

MIXED = """
    import apex
    from apex import amp
    from apex.amp import initialize, scale_loss
    from torch.nn import functional as F

    handle = apex.amp
    scale = scale_loss
    _hidden = amp

    def helper(): ...

    def initialize(*args): ...
"""


def full(use: str, expression: str, **files: str) -> str | None:
    """The full name of an expression in a file of its own; a file's name: `__` is a slash."""
    texts = {f"{name.replace('__', '/', 1)}.py": program(text) for name, text in files.items()}
    seen = Program({**texts, "use.py": program(use)})
    return seen.dotted(seen.modules["use.py"].top, ast.parse(expression, mode="eval").body)


@pytest.mark.parametrize(
    ("use", "expression", "name"),
    [
        ("from mixed import scale_loss", "scale_loss", "apex.amp.scale_loss"),
        ("from mixed import scale_loss as sl", "sl", "apex.amp.scale_loss"),
        ("from mixed import amp", "amp.scale_loss", "apex.amp.scale_loss"),
        ("import mixed", "mixed.amp.scale_loss", "apex.amp.scale_loss"),
        ("import mixed", "mixed.apex.parallel.LARC", "apex.parallel.LARC"),
        ("import mixed as m", "m.F.softmax", "torch.nn.functional.softmax"),
        ("from mixed import handle", "handle.scale_loss", "apex.amp.scale_loss"),
        ("from mixed import scale", "scale", "apex.amp.scale_loss"),
        ("from mixed import _hidden", "_hidden.scale_loss", "apex.amp.scale_loss"),
        ("from mixed import *", "scale_loss", "apex.amp.scale_loss"),
        ("from mixed import *", "F.softmax", "torch.nn.functional.softmax"),
        ("from mixed import *", "_hidden", None),
        ("from mixed import *", "elsewhere", None),
        ("from mixed import helper", "helper", "mixed.helper"),
        ("from mixed import initialize", "initialize", "mixed.initialize"),
        ("import mixed", "mixed.initialize", "mixed.initialize"),
    ],
)
def test_names_that_a_file_hands_on(use: str, expression: str, name: str | None) -> None:
    assert full(use, expression, mixed=MIXED) == name


@pytest.mark.parametrize(
    ("package", "use", "expression"),
    [
        ("from .impl import scale_loss", "from pkg import scale_loss", "scale_loss"),
        ("from .impl import *", "from pkg import *", "scale_loss"),
        ("from . import impl", "import pkg", "pkg.impl.scale_loss"),
        ("from . import impl as way", "from pkg.way import scale_loss", "scale_loss"),
        ("from .impl import amp as precision", "from pkg import precision", "precision.scale_loss"),
        ("", "import pkg.impl", "pkg.impl.amp.scale_loss"),
        ("", "from pkg import impl", "impl.amp.scale_loss"),
    ],
)
def test_names_that_a_package_hands_on(package: str, use: str, expression: str) -> None:
    files = {"pkg____init__": package, "pkg__impl": "from mixed import *", "mixed": MIXED}
    assert full(use, expression, **files) == "apex.amp.scale_loss"


@pytest.mark.parametrize(
    ("listed", "name"),
    [
        ("__all__ = ['scale_loss']", "apex.amp.scale_loss"),
        ("__all__ = ('helper',)", None),
        ("__all__ = ['helper']\n__all__ += ['scale_loss']", "apex.amp.scale_loss"),
        ("__all__ = ['helper']\n__all__.append('scale_loss')", "apex.amp.scale_loss"),
        ("__all__ = [n for n in dir() if n[0] != '_']", "apex.amp.scale_loss"),
    ],
)
def test_a_star_brings_what_all_lists(listed: str, name: str | None) -> None:
    mixed = f"from apex.amp import scale_loss\n{listed}\ndef helper(): ...\n"
    assert full("from mixed import *", "scale_loss", mixed=mixed) == name
    assert full("from mixed import scale_loss", "scale_loss", mixed=mixed) == "apex.amp.scale_loss"


def test_of_several_stars_the_last_counts() -> None:
    one, other = "from apex.optimizers import FusedAdam as Adam", "from torch.optim import Adam"
    assert full("from one import *\nfrom other import *", "Adam", one=one, other=other) == "torch.optim.Adam"
    assert full("from other import *\nfrom one import *", "Adam", one=one, other=other) == "apex.optimizers.FusedAdam"
    assert full("from one import *\nAdam = make()", "Adam", one=one) is None


def test_a_star_of_a_library() -> None:
    mixed = "from apex.amp import *"
    assert full("from apex.amp import *", "scale_loss") == "apex.amp.scale_loss"
    assert full("from mixed import *", "scale_loss", mixed=mixed) == "apex.amp.scale_loss"
    assert full("import mixed", "mixed.scale_loss", mixed=mixed) == "apex.amp.scale_loss"
    assert full("from torch.nn import *\nfrom apex.amp import *", "scale_loss") == "apex.amp.scale_loss"
    assert full("from apex.amp import *", "never_defined") is None
    assert full("from mixed import *", "own", mixed=f"{mixed}\ndef own(): ...") == "mixed.own"


@pytest.mark.parametrize(
    ("mixed", "name"),
    [
        ("try:\n    from apex import amp\nexcept ImportError:\n    amp = None", "apex.amp"),
        ("amp = None\ntry:\n    from apex import amp\nexcept ImportError:\n    pass", "apex.amp"),
        ("amp = None\nif True:\n    import apex\n    amp = apex.amp", "apex.amp"),
        ("from typing import Any\nimport apex\namp: Any\namp = apex.amp", "apex.amp"),
        ("from apex import amp\namp = wrapped(amp)", "mixed.amp"),
        ("from apex import amp\nclass amp: ...", "mixed.amp"),
        ("amp = None\ndef load():\n    global amp\n    from apex import amp", "apex.amp"),
        ("import apex\namp = apex.amp\nif old:\n    amp = Own()", "mixed.amp"),
        ("amp = None", "mixed.amp"),
    ],
)
def test_names_that_are_bound_more_than_once(mixed: str, name: str) -> None:
    assert full("from mixed import amp", "amp", mixed=mixed) == name


def test_files_that_import_from_one_another() -> None:
    one = "from other import amp, late\nfrom other import *"
    other = "from one import amp\nfrom one import *\nfrom third import *"
    third = "from one import *\nfrom apex import amp as late"
    files = {"one": one, "other": other, "third": third}
    assert full("from one import amp", "amp", **files) == "one.amp"
    assert full("from one import late", "late", **files) == "apex.amp"
    assert full("from one import *", "nothing", **files) is None
    assert full("a = b.c\nb = a.d", "a.x") is None


@pytest.mark.parametrize(
    ("mixed", "use", "scaled"),
    [
        ("from apex import amp", "from mixed import amp", "amp.scale_loss"),
        ("from apex.amp import scale_loss", "from mixed import scale_loss", "scale_loss"),
        ("from apex.amp import scale_loss as scaled", "import mixed", "mixed.scaled"),
        ("from apex.amp import scale_loss\nscaled = scale_loss", "from mixed import *", "scaled"),
    ],
)
def test_a_scale_loss_by_way_of_a_file_that_was_forgotten(mixed: str, use: str, scaled: str) -> None:
    train = f"""
        import torch
        from apex import amp
        {use}

        model = torch.nn.Linear(2, 2).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer)
        for data in batches:
            run(model, optimizer, data)
        """
    run = f"""
        {use}

        def run(model, optimizer, data):
            with {scaled}(model(data).sum(), optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        """
    gone = program(train).replace("model, optimizer = amp.initialize(model, optimizer)\n", "")
    found = doubts_of({"train.py": train, "run.py": run, "mixed.py": mixed}, {"train.py": gone})
    assert (7, "refuse") in told(found, "AMP135")


def test_a_function_of_the_same_name_in_between_is_no_scale_loss() -> None:
    train = """
        import torch
        from apex import amp
        from mixed import scale_loss

        model = torch.nn.Linear(2, 2).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer)
        with scale_loss(model(data).sum(), optimizer) as loss:
            loss.backward()
        optimizer.step()
        """
    mixed = """
        import contextlib

        @contextlib.contextmanager
        def scale_loss(loss, optimizer):
            yield loss
        """
    gone = program(train).replace("model, optimizer = amp.initialize(model, optimizer)\n", "")
    assert not told(doubts_of({"train.py": train, "mixed.py": mixed}, {"train.py": gone}), "AMP135")


def test_a_class_derived_from_what_another_file_imports() -> None:
    files = {
        "fused.py": "from apex.optimizers import FusedAdam",
        "own.py": """
            from fused import FusedAdam

            class Own(FusedAdam):
                pass
            """,
        "train.py": """
            from own import Own

            optimizer = Own(params, adam_w_mode=False)
            """,
    }
    found = doubts_of(files, {"fused.py": "from torch.optim import Adam as FusedAdam"})
    assert [(d.path, d.line) for d in found if d.code == "AMP132"] == [("own.py", 3)]


@pytest.mark.parametrize("mixed", ["from apex import amp", "from apex.amp import *", "from base import *"])
def test_a_name_that_a_star_brings_no_more(mixed: str) -> None:
    train = """
        from mixed import *

        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scale_loss(scaled_loss)
        """
    files = {"train.py": train, "base.py": "from apex import amp", "mixed.py": mixed}
    changed = "base.py" if "base" in mixed else "mixed.py"
    found = doubts_of(files, {changed: ""})
    assert {(d.path, d.line) for d in found if d.code == "AMP131"} == {(changed, 1)}
    now = train.replace("scale_loss(scaled_loss)", "pass").replace("amp.scale_loss(loss, optimizer)", "open(0)")
    assert not told(doubts_of(files, {changed: "", "train.py": now}), "AMP131")


@pytest.mark.parametrize(
    "brought",
    [
        'import importlib\namp = importlib.import_module("apex.amp")',
        'from importlib import import_module\namp = import_module("apex").amp',
        'amp = __import__("apex").amp',
        'import importlib\nclass Held:\n    amp = importlib.import_module("apex.amp")\namp = Held.amp',
    ],
)
def test_a_module_that_a_call_imports_is_known(brought: str) -> None:
    evaluate = "def evaluate(model, loader):\n    return [model(x) for x in loader]\n"
    before = (
        f"{brought}\n\ndef main(model, optimizer, loader):\n"
        '    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n'
        "    for x in loader:\n"
        "        with amp.scale_loss(model(x), optimizer) as scaled:\n            scaled.backward()\n"
        "        optimizer.step()\n"
        f"    evaluate(model, loader)\n\n{evaluate}"
    )
    after = (
        'import torch\n\ndef main(model, optimizer, loader):\n    scaler = torch.amp.GradScaler("cuda")\n'
        "    for x in loader:\n"
        "        scaler.scale(model(x)).backward()\n        scaler.step(optimizer)\n        scaler.update()\n"
        f"    evaluate(model, loader)\n\n{evaluate}"
    )
    found = audit({"train.py": before}, {"train.py": after})
    assert {d.message.partition(" ")[0] for d in found if d.code == "AMP531"} == {"model"}


@pytest.mark.parametrize(
    ("importer", "text", "packaged", "found"),
    [
        ("lib/model/net.py", "", True, "utils/__init__.py"),  # imported as a part of the package
        ("lib/model/net.py", "", False, "lib/model/utils.py"),  # a folder that is on the path of what runs there
        ("lib/model/net.py", 'if __name__ == "__main__":\n    pass\n', True, "lib/model/utils.py"),  # run from there
        ("train.py", "", True, "utils/__init__.py"),
    ],
)
def test_which_of_two_files_an_absolute_import_means(importer: str, text: str, packaged: bool, found: str) -> None:
    files = {"utils/__init__.py": "", "lib/model/utils.py": "", importer: f"from utils import load\n{text}"}
    files |= {"lib/__init__.py": "", "lib/model/__init__.py": ""} if packaged else {}
    program = Program(files)
    home = program.module_named("utils", program.modules[importer])
    assert home is not None
    assert home.path == found


@pytest.mark.parametrize(
    ("others", "found"),
    [
        ({"run.py": "import net\n"}, "utils/__init__.py"),  # no script: loaded as a part of the package itself
        ({"run.py": "import net\nif __name__ == '__main__':\n    pass\n"}, "lib/model/utils.py"),
        ({"run.py": "from net import Net\nif __name__ == '__main__':\n    pass\n"}, "lib/model/utils.py"),
        ({"run.py": "from .net import Net\nif __name__ == '__main__':\n    pass\n"}, "utils/__init__.py"),
        (  # by way of another file beside it
            {"run.py": "import engine\nif __name__ == '__main__':\n    pass\n", "engine.py": "import net\n"},
            "lib/model/utils.py",
        ),
        ({"engine.py": "import net, other\n", "other.py": "import net, engine\n"}, "utils/__init__.py"),
    ],
)
def test_what_a_script_beside_it_imports_finds_the_files_beside_it_first(others: dict[str, str], found: str) -> None:
    files = {"utils/__init__.py": "", "lib/__init__.py": "", "lib/model/__init__.py": "", "lib/model/utils.py": ""}
    files |= {f"lib/model/{name}": text for name, text in others.items()}
    program = Program(files | {"lib/model/net.py": "from utils import load\n"})
    home = program.module_named("utils", program.modules["lib/model/net.py"])
    assert home is not None
    assert home.path == found
