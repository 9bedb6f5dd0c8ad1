"""What files of the program hand on of Apex's is migrated where it is used; no import goes that another file needs."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_files, rewrite_files

TRAIN = """
import torch
{imports}

model = torch.nn.Linear(2, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = {amp}initialize(model, optimizer, opt_level="O1")
for x in data:
    loss = model(x).sum()
    with {amp}scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
"""
NATIVE = """
import torch
{imports}
model = torch.nn.Linear(2, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x in data:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
AMP = "from apex import amp\n"


@pytest.mark.parametrize(
    ("files", "imports", "amp"),
    [
        ({"mixed.py": AMP}, "from mixed import amp", "amp."),
        ({"mixed.py": AMP}, "from mixed import amp as precision", "precision."),
        ({"mixed.py": AMP}, "import mixed", "mixed.amp."),
        ({"mixed.py": "import apex\n"}, "import mixed", "mixed.apex.amp."),
        ({"mixed.py": "from apex.amp import initialize, scale_loss\n"}, "from mixed import initialize, scale_loss", ""),
        ({"mixed.py": f"try:\n    {AMP}except ImportError:\n    amp = None\n"}, "from mixed import amp", "amp."),
        ({"base.py": AMP, "mixed.py": "from base import amp as half\n"}, "from mixed import half", "half."),
        ({"base.py": AMP, "mixed.py": "import base\n"}, "import mixed", "mixed.base.amp."),
        ({"pkg/__init__.py": "from .impl import amp\n", "pkg/impl.py": AMP}, "from pkg import amp", "amp."),
    ],
)
def test_names_that_other_files_hand_on(files: dict[str, str], imports: str, amp: str) -> None:
    after = check_files({**files, "train.py": TRAIN.format(imports=imports, amp=amp)})
    assert after["train.py"] == NATIVE.format(imports="").lstrip("\n")
    assert not any("amp" in after[name] for name in files)


@pytest.mark.parametrize(
    ("files", "module", "amp"),
    [
        ({"mixed.py": AMP}, "mixed", "amp."),
        ({"mixed.py": "from apex.amp import *\n"}, "mixed", ""),
        ({"pkg/__init__.py": "from .impl import *\n", "pkg/impl.py": AMP}, "pkg", "amp."),
        ({"mixed.py": f'__all__ = ["amp", "run"]\n{AMP}\n\ndef run():\n    pass\n'}, "mixed", "amp."),
    ],
)
def test_names_that_a_star_brings(files: dict[str, str], module: str, amp: str) -> None:
    after = rewrite_files({**files, "train.py": TRAIN.format(imports=f"from {module} import *", amp=amp)})
    assert after["train.py"].after == NATIVE.format(imports=f"from {module} import *\n").lstrip("\n")


def test_a_star_does_not_bring_what_all_leaves_out() -> None:
    """Then the name comes from elsewhere, out of sight: nothing is done to it."""
    mixed = f'{AMP}\n__all__ = ["run"]\n'
    after = rewrite_files({"mixed.py": mixed, "train.py": TRAIN.format(imports="from mixed import *", amp="amp.")})
    assert after["train.py"].after is None


def test_a_scale_loss_in_a_file_that_never_names_apex() -> None:
    files = {
        "mixed.py": "from apex.amp import scale_loss\n",
        "step.py": """
            from mixed import *


            def step(loss, optimizer):
                with scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
            """,
        "train.py": """
            import torch
            from apex import amp
            from step import step

            model = torch.nn.Linear(2, 2).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            for x in data:
                step(model(x).sum(), optimizer)
            """,
    }
    after = check_files(files)
    assert "scaler.scale(loss).backward()" in after["step.py"]
    assert "step(model(x).sum(), optimizer, scaler)" in after["train.py"]
    assert "apex" not in "".join(after.values())


def test_an_import_stays_that_a_file_derives_a_class_from() -> None:
    """The file that does has no word of training in it."""
    files = {
        "fused.py": "from apex.optimizers import FusedAdam\n",
        "own.py": "from fused import FusedAdam\n\n\nclass Own(FusedAdam):\n    mode = property(lambda self: self.adam_w_mode)\n",
        "train.py": "from own import Own\n\noptimizer = Own(model.parameters(), lr=0.1)\n",
    }
    results = rewrite_files(files)
    assert all(result.after is None for result in results.values())
    assert [f.code for f in results["own.py"].findings if f.status == "manual"] == ["AMP621"]


def test_an_import_stays_that_a_package_lists() -> None:
    package = 'from .impl import amp\n\n__all__ = ["amp"]\n'
    results = rewrite_files({"pkg/__init__.py": package, "pkg/impl.py": AMP, "train.py": "import torch\nimport pkg\n"})
    assert all(result.after is None for result in results.values())
    assert [f.code for f in results["pkg/impl.py"].findings if f.status == "manual"] == ["AMP102"]


def test_a_value_stays_that_another_file_has_by_a_star() -> None:
    files = {
        "setup.py": """
            import torch
            from apex import amp

            scale = "dynamic"
            model = torch.nn.Linear(2, 2).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1", loss_scale=scale)
            for x in data:
                with amp.scale_loss(model(x).sum(), optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
            """,
        "log.py": "import torch\nfrom setup import *\n\nprint(scale)\n",
    }
    after = check_files(files)
    assert 'scale = "dynamic"' in after["setup.py"]


def test_a_loss_that_comes_by_a_star_is_kept_out_of_the_region() -> None:
    files = {
        "names.py": "from torch.nn import functional as F\n",
        "train.py": """
            import torch
            from apex import amp
            from names import *

            model = torch.nn.Linear(2, 2).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
            for x, y in data:
                output = model(x).sigmoid()
                loss = F.binary_cross_entropy(output, y)
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
            """,
    }
    text = check_files(files)["train.py"]
    assert "        output = model(x).float().sigmoid()\n" in text
    assert "\n    loss = F.binary_cross_entropy(output.float(), y)\n" in text


FLAG = "try:\n    from apex import amp\n    HAS_APEX = True\nexcept ImportError:\n    HAS_APEX = False\n"


@pytest.mark.parametrize(
    ("imports", "flag", "amp", "left"),
    [
        ("from compat import HAS_APEX, amp", "HAS_APEX", "amp", ""),
        ("from compat import HAS_APEX as found, amp", "found", "amp", ""),
        ("import compat", "compat.HAS_APEX", "compat.amp", ""),
        ("from compat import *", "HAS_APEX", "amp", "from compat import *\n"),
        ("from pkg import HAS_APEX, amp", "HAS_APEX", "amp", ""),
        ("from star import HAS_APEX, amp", "HAS_APEX", "amp", ""),
    ],
)
def test_a_flag_of_apex_by_way_of_other_files(imports: str, flag: str, amp: str, left: str) -> None:
    train = TRAIN.format(imports=imports, amp=f"{amp}.").replace(
        f"model, optimizer = {amp}.init", f"if {flag}:\n    model, optimizer = {amp}.init"
    )
    files = {
        "train.py": train.replace("data:", "data:\n    if not FLAG:\n        continue".replace("FLAG", flag)),
        "compat.py": FLAG,
        "pkg/__init__.py": "from .flags import HAS_APEX, amp\n",
        "pkg/flags.py": FLAG,
        "star.py": "from compat import *\n",
    }
    after = check_files(files)
    assert after["train.py"] == NATIVE.format(imports=left).lstrip("\n")
    assert not any("import amp" in text or "ImportError" in text for text in after.values())


def test_what_asks_for_something_else_is_no_flag() -> None:
    files = {
        "compat.py": "from settings import HAS_APEX\n",
        "settings.py": "HAS_APEX = bool(input())\n",
        "train.py": TRAIN.format(imports="from apex import amp\nfrom compat import HAS_APEX", amp="amp.").replace(
            "model, optimizer = amp.", "if HAS_APEX:\n    model, optimizer = amp."
        ),
    }
    assert 'GradScaler("cuda", enabled=' in str(rewrite_files(files)["train.py"].after)


ALL_OF_EACH_OTHER = {
    "one.py": "from three import *\nfrom two import *\n",
    "two.py": "from three import *\nfrom one import *\n",
    "three.py": "from apex import amp\n",
    "pack/__init__.py": "from .parts import *\n",
    "pack/parts.py": "from pack import blur\nfrom two import *\n",
    "pack/blur.py": "from pack.parts import *\n",
    "neither.py": "from two import *\nprint(missing, pack.blur)\n",
}


@pytest.mark.parametrize("source", ["one", "two", "pack", "pack.parts", "pack.blur"])
def test_files_that_import_all_of_each_other_come_to_an_end(source: str) -> None:
    """Two files have a name by a star of the other, and by one of a third that has it; a package has a file by a star of
    another of its files, which imports it from the package."""
    results = rewrite_files(
        {**ALL_OF_EACH_OTHER, "train.py": TRAIN.format(imports=f"from {source} import *", amp="amp.")}
    )
    after = results["train.py"].after
    assert after is not None, results["train.py"].findings
    assert "scaler.scale(loss).backward()" in after
    assert "amp." not in after.replace("torch.amp.", "")
    assert not (results["three.py"].after or "import").strip()


HEADER = "import torch\nimport torch.nn as nn\nfrom apex import amp\n"
AGENT = """\
from header import *


class Agent:
    def __init__(self):
        self.model = nn.Linear(2, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")

    def train(self, batches):
        for x, y in batches:
            loss = nn.functional.mse_loss(self.model(x), y)
            with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
            self.optimizer.step()
"""


@pytest.mark.parametrize(
    ("header", "imported"),
    [
        (HEADER, 0),
        (HEADER.replace("import torch\n", "from base import *\n"), 0),
        (HEADER.replace("import torch\n", "import math as torch\n"), 2),
    ],
)
def test_torch_that_comes_by_a_star_is_not_imported_again(header: str, imported: int) -> None:
    texts = check_files({"agent.py": AGENT, "header.py": header, "base.py": "import torch\n"})
    assert texts["agent.py"].count("import torch\n") == imported


OFFERED = """
import warnings

try:
    from apex.normalization import FusedLayerNorm as LayerNorm
    from apex.parallel import SyncBatchNorm
except ImportError as error:
    warnings.warn(f"no Apex: {error}")
    from torch.nn import LayerNorm, SyncBatchNorm

__all__ = ["LayerNorm", "SyncBatchNorm"]
"""


@pytest.mark.parametrize("root", ["", "parts/"])
def test_what_a_package_offers_is_torchs_where_apex_was_missing(root: str) -> None:
    """Whoever imports it has it by then, in a package below a folder of its name, too."""
    users = {
        f"{root}net.py": "from parts.norms import LayerNorm\n\nnorm = LayerNorm(4)\n",
        f"{root}parts/__init__.py": "",
    }
    after = check_files({f"{root}parts/norms.py": OFFERED, **users})
    assert "apex" not in after[f"{root}parts/norms.py"].lower()
    assert "from torch.nn import LayerNorm, SyncBatchNorm\n" in after[f"{root}parts/norms.py"]


def test_what_is_offered_without_another_is_left_to_its_users() -> None:
    """Only who uses the class knows whether torch's takes the arguments: `channel_last=True`."""
    text = 'from apex.parallel import SyncBatchNorm\n\n__all__ = ["SyncBatchNorm"]\n'
    (left,) = rewrite_files({"norms.py": text})["norms.py"].findings
    assert (left.code, left.status) == ("AMP102", "manual")


def test_a_name_is_handed_on_below_a_folder_of_the_same_name() -> None:
    norms = OFFERED.partition("__all__")[0].replace("    from apex.parallel import SyncBatchNorm\n", "")
    user = "from parts.norms import LayerNorm\n\nNORMS = {'layer': LayerNorm}\n"
    after = check_files({"parts/parts/norms.py": norms, "parts/parts/__init__.py": "", "parts/tests/net.py": user})
    assert after["parts/parts/norms.py"].strip() == "from torch.nn import LayerNorm, SyncBatchNorm"
