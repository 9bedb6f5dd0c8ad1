"""Deprecated names where only a torch comes that does not have their successors: they stay as they are."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_untouched, rewrite, rewrite_files

TWO = """
import torch
from version import TORCH_VERSION, digits


def context(enabled):
    if TEST:
        with torch.cuda.amp.autocast(enabled=enabled):
            yield
    else:
        with torch.cuda.amp.autocast(enabled=enabled, cache_enabled=True):
            yield
"""
VERSION = "import torch\n\nTORCH_VERSION = torch.__version__\n\n\ndef digits(text):\n    return text.split()\n"
FIRST, SECOND = 'autocast("cuda", enabled=enabled):', 'autocast("cuda", enabled=enabled, cache_enabled=True)'


@pytest.mark.parametrize(
    ("test", "written"),
    [
        ('digits("1.5.0") <= digits(TORCH_VERSION) < digits("1.10.0")', [SECOND]),
        ('digits("1.10.0") <= digits(TORCH_VERSION)', [FIRST]),
        ('torch.__version__ < "1.10"', [SECOND]),
        ('hasattr(torch, "autocast")', [FIRST]),
        ('not hasattr(torch.amp, "autocast")', [SECOND]),
        ('hasattr(torch, "compile")', [FIRST, SECOND]),
        ('digits("1.5.0") <= digits(TORCH_VERSION) < digits("2.9.0")', [FIRST, SECOND]),
        ("digits(TORCH_VERSION) < limit", [FIRST, SECOND]),
        ("enabled", [FIRST, SECOND]),
    ],
)
def test_a_branch_for_an_old_torch_keeps_its_names(test: str, written: list[str]) -> None:
    result = rewrite_files({"amp.py": TWO.replace("TEST", test), "version.py": VERSION})["amp.py"]
    assert result.after is not None
    assert [w for w in (FIRST, SECOND) if w in result.after] == written
    assert result.after.count("torch.cuda.amp") == 2 - len(written)


def test_a_constant_that_is_something_else_decides_nothing() -> None:
    other = VERSION.replace("torch.__version__", "torch.version.cuda")
    texts = {"amp.py": TWO.replace("TEST", 'digits(TORCH_VERSION) < digits("1.10.0")'), "version.py": other}
    assert "torch.cuda.amp" not in (rewrite_files(texts)["amp.py"].after or "torch.cuda.amp")


def test_an_expression_chosen_by_the_version() -> None:
    result = rewrite(
        'import torch\n\nnew = torch.__version__ > "1.10"\n'
        "made = torch.cuda.amp.autocast() if new else torch.cuda.amp.autocast(True)\n"
    )
    assert 'made = torch.autocast("cuda") if new else torch.cuda.amp.autocast(True)\n' in (result.after or "")


ASKED = """
import torch

NEW = hasattr(torch.amp, "GradScaler")


def scaler():
    if {test}:
        {first}
    {second}


def late():
    return torch.cuda.amp.GradScaler()
"""
NEWER, OLDER = 'return torch.amp.GradScaler("cuda")', "return torch.cuda.amp.GradScaler()"


@pytest.mark.parametrize(
    ("test", "first", "second"),
    [
        ("NEW", NEWER, OLDER),
        ("not NEW", OLDER, NEWER),
        ('hasattr(torch.amp, "GradScaler")', NEWER, "else:\n        " + OLDER),
        ('hasattr(torch.amp, "GradScaler")', NEWER, OLDER),
    ],
)
def test_what_is_written_for_a_torch_without_the_name_holds_nothing_back(test: str, first: str, second: str) -> None:
    """The name is right there: what tests for its successor must not be given that in the other branch."""
    text = ASKED.format(test=test, first=first, second=second)
    result = rewrite(text)
    assert not [f for f in result.findings if f.status == "manual"]
    kept, _, late = text.partition("def late")
    assert (
        result.after
        == (kept + "def late" + late.replace("torch.cuda.amp.GradScaler()", 'torch.amp.GradScaler("cuda")')).lstrip()
    )


@pytest.mark.parametrize(
    ("bound", "name", "told"),
    [
        ("1.6", "GradScaler", True),
        ("1.6", "autocast", True),
        ("1.10", "autocast", False),
        ("2.3", "custom_fwd", True),
        ("2.4", "custom_fwd", False),
        ("2.2", "GradScaler", True),
        ("2.3", "GradScaler", False),
    ],
)
def test_a_bound_that_lets_in_a_torch_without_the_new_name_is_told(bound: str, name: str, told: bool) -> None:
    program = f"""
        import torch
        from packaging import version

        if version.parse(torch.__version__) >= version.parse("{bound}"):
            from torch.cuda.amp import {name}

            made = {name}({(name == "custom_fwd" and "print") or ""})
        """
    result = rewrite(program)
    assert result.after is not None
    found = [(f.line, f.review) for f in result.findings if "raise its bound" in f.message]
    assert found == ([(5, "review")] if told else [])


def test_a_bound_that_goes_lets_nothing_in() -> None:
    program = """
        import torch
        from packaging import version
        from project import build, loader

        model, optimizer = build()
        amp, scaler = None, None
        if version.parse(torch.__version__) >= version.parse("1.6"):
            scaler = torch.cuda.amp.GradScaler()
        else:
            from apex import amp
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        print(amp)
        """
    result = rewrite(program)
    assert result.after is not None
    assert 'scaler = torch.amp.GradScaler("cuda")\nprint(amp)' in result.after
    assert not [f for f in result.findings if f.code == "AMP904"]
    (left,) = [f for f in result.findings if f.code == "AMP124" and f.status == "note"]
    assert left.message == "amp is None on every run now: take out what is left of it (line 12)"


@pytest.mark.parametrize(
    "choice",
    [
        "if is_pytorch_at_least_2_3():\n    make = torch.GradScaler\nelse:\n    make = torch.cuda.amp.GradScaler\n",
        'make = torch.amp.GradScaler if is_torch_version(">=", "2.3") else torch.cuda.amp.GradScaler\n',
        "if not torch_lt_2_3:\n    scaler = torch.amp.GradScaler('cuda')\nelse:\n    scaler = torch.cuda.amp.GradScaler()\n",
    ],
)
def test_the_deprecated_name_beside_its_successor_stays_where_a_version_is_asked_out_of_sight(choice: str) -> None:
    check_untouched(
        f"import torch\nfrom lib import is_pytorch_at_least_2_3, is_torch_version, torch_lt_2_3\n\n{choice}"
    )


def test_beside_another_device_it_is_no_fallback() -> None:
    result = rewrite("import torch\n\nregion = torch.autocast('cpu') if cpu else torch.cuda.amp.autocast()\n")
    assert result.after == "import torch\n\nregion = torch.autocast('cpu') if cpu else torch.autocast('cuda')\n"


IDLE = """
import torch
from packaging import version
from transformers import Trainer, is_apex_available

if is_apex_available():
    from apex import amp

native = version.parse(torch.__version__) >= version.parse("1.6")
if native:
    from torch.cuda.amp import autocast


class Own(Trainer):
    def fit(self, batch):
        MORE
        amp.scale_loss(batch)
"""


def test_an_import_that_nothing_uses_is_no_reason_to_write_a_file() -> None:
    """Importing the deprecated name warns of nothing; the new one may be missing where a test lets an older torch in."""
    check_untouched("from torch.cuda.amp import autocast\n\nprint(1)\n")
    check_untouched("def late():\n    from torch.cuda.amp import autocast\n    import torch.cuda.amp as amp\n")
    result = rewrite(IDLE.replace("MORE", "pass"))
    assert result.after is None
    assert not [f for f in result.findings if f.code.startswith("AMP9")]


def test_an_import_that_nothing_uses_moves_with_what_is_written_beside_it() -> None:
    """But where a test of the version lets in a torch without the new name, it stays."""
    used = "from torch.cuda.amp import autocast\nfrom torch.cuda.amp import GradScaler\n\nscaler = GradScaler()\n"
    assert "from torch.amp import autocast\nfrom torch.amp import GradScaler\n" in (rewrite(used).after or "")
    other = rewrite(IDLE.replace("MORE", "scaler = torch.cuda.amp.GradScaler()"))
    assert 'torch.amp.GradScaler("cuda")' in (other.after or "")
    assert "    from torch.cuda.amp import autocast\n" in (other.after or "")


def test_an_import_that_another_file_uses_moves() -> None:
    texts = {
        "names.py": "from torch.cuda.amp import autocast\n",
        "train.py": "from names import autocast\n\nwith autocast():\n    pass\n",
    }
    results = rewrite_files(texts)
    assert results["names.py"].after == "from torch.amp import autocast\n"
    assert 'with autocast("cuda"):' in (results["train.py"].after or "")
