"""Tests of a class that answer otherwise once torch's class stands in the place of Apex's: AMP653."""

from __future__ import annotations

import pytest

from amp_migrate.audit import Doubt
from tests.audit.helpers import doubts_of

MODEL = """
import torch
from torch import nn
from torch.nn import LayerNorm as Plain
{imports}

KINDS = (nn.Linear, nn.LayerNorm)

class Net(nn.Module):
    def __init__(self, other=None):
        super().__init__()
        self.encoder = nn.Linear(4, 4)
        self.norm = {norm}(4)
        self.other = {other}
        self.apply(self.init_weights)

    def init_weights(self, module):
        {test}:
            {body}

    def forward(self, x):
        return self.norm(self.encoder(x))
"""
DRAWN = "module.weight.data.normal_(0, 0.02)"


def found(test: str, body: str = DRAWN, now: str | None = None, *, other: str = "None") -> list[Doubt]:
    imports = "from apex.normalization import FusedLayerNorm"
    before = MODEL.format(imports=imports, norm="FusedLayerNorm", test=test, body=body, other=other)
    after = MODEL.format(imports="", norm="nn.LayerNorm", test=now or test, body=body, other=other)
    return [d for d in doubts_of({"train.py": before}, {"train.py": after}) if d.code == "AMP653"]


@pytest.mark.parametrize(
    "test",
    [
        "if isinstance(module, (nn.Linear, nn.Embedding, nn.LayerNorm))",
        "if isinstance(module, Plain)",
        "if isinstance(module, KINDS)",
        "if isinstance(module, (nn.Linear,) + KINDS)",
        "if type(module) is nn.LayerNorm",
        "if type(module) in (nn.Linear, torch.nn.LayerNorm)",
        "if module.__class__ == nn.LayerNorm",
        "if module.__class__.__name__ == 'LayerNorm'",
        "if type(module).__name__ in ('Linear', 'LayerNorm')",
        "if isinstance(module, nn.LayerNorm) and module.bias is not None",
        "if not isinstance(module, nn.LayerNorm)",
    ],
)
def test_a_test_of_torchs_class_that_was_false_of_apexs_is_told(test: str) -> None:
    (doubt,) = found(test)
    assert doubt.verdict == "review"
    assert "FusedLayerNorm was no LayerNorm" in doubt.message


@pytest.mark.parametrize(
    ("test", "body", "drawn"),
    [
        ("if isinstance(module, (nn.Linear, nn.LayerNorm))", DRAWN, True),
        ("if isinstance(module, nn.LayerNorm) and module.bias is not None", DRAWN, True),
        ("if isinstance(module, nn.LayerNorm)", "nn.init.xavier_uniform_(module.weight)", True),
        ("if isinstance(module, nn.LayerNorm)", "module.bias.data.normal_(0, 0.02)", False),
        ("if isinstance(module, nn.LayerNorm)", "module.weight.data.mul_(2)", False),
        ("if not isinstance(module, nn.LayerNorm)", DRAWN, False),
        ("if type(module) is not nn.LayerNorm", DRAWN, False),
    ],
)
def test_a_weight_that_is_drawn_anew_is_said_to_be(test: str, body: str, drawn: bool) -> None:
    (doubt,) = found(test, body)
    told = f"its weight, 1 as it is made, is drawn anew ({body}). Take torch's LayerNorm out of the test"
    assert (told in doubt.message) is drawn
    assert ("See that what follows is meant for it" in doubt.message) is not drawn


@pytest.mark.parametrize(
    ("test", "now"),
    [
        ("if isinstance(module, nn.Linear)", None),
        ("if isinstance(module, (nn.Linear, nn.Module))", None),
        ("if 'LayerNorm' in module.__class__.__name__", None),
        ("if isinstance(module, (nn.LayerNorm, FusedLayerNorm))", "if isinstance(module, nn.LayerNorm)"),
        ("if isinstance(module, FusedLayerNorm)", "if isinstance(module, nn.LayerNorm)"),
        ("if module is nn.LayerNorm", None),
    ],
)
def test_the_same_answer_is_not_told(test: str, now: str | None) -> None:
    assert not found(test, now=now)


@pytest.mark.parametrize(
    "body",
    [
        "module.weight.data.fill_(1.0)",
        "module.bias.data.zero_(); module.weight.data.fill_(1)",
        "nn.init.ones_(module.weight); nn.init.zeros_(module.bias)",
        "nn.init.constant_(module.weight, 1.0); nn.init.constant_(module.bias, 0)",
    ],
)
def test_weights_that_are_set_to_what_they_are_made_as_are_not_told(body: str) -> None:
    assert not found("if isinstance(module, nn.LayerNorm)", body)


def test_a_tuple_that_may_be_its_own_element_is_asked_once() -> None:
    """`kinds = (kinds,)`, where one class is given."""
    other = "self.select(KINDS)\n\n    def select(self, kinds):\n        if not isinstance(kinds, tuple):\n"
    other += "            kinds = (kinds,)\n        return [m for m in self.modules() if isinstance(m, kinds)]"
    (doubt,) = found("if module.training", other=other)
    assert doubt.message.startswith("isinstance(m, kinds)")


@pytest.mark.parametrize("body", ["module.weight.data.fill_(0.5)", "module.weight.data.zero_()", "module.eps = 1e-3"])
def test_weights_that_are_set_to_something_else_are(body: str) -> None:
    assert found("if isinstance(module, nn.LayerNorm)", body)


def test_what_asked_for_apexs_class_finds_torchs_own_objects_too() -> None:
    asked, now = "if isinstance(module, FusedLayerNorm)", "if isinstance(module, nn.LayerNorm)"
    (doubt,) = found(asked, now=now, other="nn.LayerNorm(4)")
    assert doubt.verdict == "look"
    assert "alone" in doubt.message
    assert not found(asked, now=now)
    as_made = "module.bias.data.zero_(); module.weight.data.fill_(1.0)"
    assert not found(asked, as_made, now=now, other="nn.LayerNorm(4)")


WRAP = """
import torch
from torch.nn.parallel import DistributedDataParallel as Native
{imports}
from save import save

model = torch.nn.Linear(4, 2).cuda()
optimizer = {optimizer}(model.parameters(), lr=0.1)
model = {wrap}(model)
save(model, optimizer)
"""
SAVE = """
import torch

def save(model, optimizer):
    {test}:
        model = model.module
    torch.save(model.state_dict(), "out.pt")

def other(x):
    return isinstance(x, dict)
"""


@pytest.mark.parametrize(
    ("test", "told"),
    [
        ("if isinstance(model, torch.nn.parallel.DistributedDataParallel)", ["look"]),
        ("if isinstance(model, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel))", ["look"]),
        ("if isinstance(optimizer, torch.optim.SGD)", ["look"]),
        ("if isinstance(optimizer, torch.optim.Adam)", []),
        ("if isinstance(optimizer, torch.optim.Optimizer)", []),
        ("if hasattr(model, 'module')", []),
    ],
)
def test_wrappers_and_optimizers_in_another_file(test: str, told: list[str]) -> None:
    imports = "from apex.parallel import DistributedDataParallel as DDP\nfrom apex.optimizers import FusedSGD"
    before = WRAP.format(imports=imports, optimizer="FusedSGD", wrap="DDP")
    after = WRAP.format(imports="", optimizer="torch.optim.SGD", wrap="Native")
    files = {"train.py": before, "save.py": SAVE.format(test=test)}
    doubts = [d for d in doubts_of(files, {"train.py": after}) if d.code == "AMP653"]
    assert [d.verdict for d in doubts] == told
    assert all(d.path == "save.py" for d in doubts)


CONVERTED = """
import torch
from torch import nn
{imports}

def groups(model):
    return [m.weight for m in model.modules() if isinstance(m, nn.SyncBatchNorm)]

def main():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    {before}
    model = {convert}(model)
    {after}

main()
"""


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("weights = groups(model)", "pass", 0),
        ("pass", "weights = groups(model)", 1),
        ("weights = groups(model)", "weights = groups(model)", 1),
        ("norm = SyncBatchNorm(4); weights = groups(model)", "pass", 1),  # made without a conversion, too
    ],
)
def test_a_test_that_runs_before_the_conversion_finds_none(before: str, after: str, said: int) -> None:
    made = "from apex.parallel import convert_syncbn_model, SyncBatchNorm"
    was = CONVERTED.format(imports=made, convert="convert_syncbn_model", before=before, after=after)
    now = CONVERTED.format(
        imports="from torch.nn import SyncBatchNorm",
        convert="SyncBatchNorm.convert_sync_batchnorm",
        before=before,
        after=after,
    )
    assert len([d for d in doubts_of({"train.py": was}, {"train.py": now}) if d.code == "AMP653"]) == said


@pytest.mark.parametrize(("imports", "told"), [("", 0), ("import export\n", 1)])
def test_files_of_another_program_see_no_such_objects(imports: str, told: int) -> None:
    wrapped = WRAP.format(
        imports="from apex.parallel import DistributedDataParallel as DDP", optimizer="SGD", wrap="DDP"
    )
    wrapped = f"{imports}{wrapped.replace('SGD(', 'torch.optim.SGD(')}"
    now = wrapped.replace("from apex.parallel import DistributedDataParallel as DDP", "").replace("DDP(", "Native(")
    export = SAVE.format(test="if isinstance(model, torch.nn.parallel.DistributedDataParallel)")
    other = "from apex import amp\nimport export\nmodel = amp.initialize(read(), opt_level='O1')\nexport.save(model, None)\n"
    files = {"train.py": wrapped, "save.py": "def save(*given):\n    pass\n", "export.py": export, "other.py": other}
    after = {"train.py": now, "other.py": "import export\nmodel = read()\nexport.save(model, None)\n"}
    assert len([d for d in doubts_of(files, after) if d.code == "AMP653"]) == told


def test_each_of_several_programs_is_told_of_its_own_objects() -> None:
    imports = "from apex.parallel import DistributedDataParallel as DDP"
    wrapped = WRAP.format(imports=imports, optimizer="torch.optim.SGD", wrap="DDP")
    test = "if isinstance(model, torch.nn.parallel.DistributedDataParallel)"
    files, after = dict[str, str](), dict[str, str]()
    for name in ("one", "two"):
        files[f"{name}/save.py"] = SAVE.format(test=test)
        files[f"{name}/train.py"] = wrapped.replace("from save", f"from {name}.save")
        after[f"{name}/train.py"] = files[f"{name}/train.py"].replace(imports, "").replace("DDP(", "Native(")
    found = [d for d in doubts_of(files, after) if d.code == "AMP653"]
    assert [(d.path, f"of {d.path.replace('save', 'train')})" in d.message) for d in found] == [
        ("one/save.py", True),
        ("two/save.py", True),
    ]
    assert len({d.alike for d in found}) == 1  # told in one line


@pytest.mark.parametrize(
    ("imported", "told"), [("import train\n", False), ("import train\nfrom other import make\n", True)]
)
def test_what_another_program_makes_of_torchs_class_comes_to_no_test_of_this_one(imported: str, told: bool) -> None:
    """Both change; only one process may load both."""
    asked, now = "if isinstance(module, FusedLayerNorm)", "if isinstance(module, nn.LayerNorm)"
    imports = "from apex.normalization import FusedLayerNorm"
    before = MODEL.format(imports=imports, norm="FusedLayerNorm", test=asked, body=DRAWN, other="None")
    after = MODEL.format(imports="", norm="nn.LayerNorm", test=now, body=DRAWN, other="None")
    other = "from torch import nn\n{}\n\ndef make():\n    return nn.LayerNorm(4), {}(4)\n"
    files = {
        "train.py": before,
        "run.py": imported,
        "other.py": other.format(imports, "FusedLayerNorm"),
    }
    doubts = doubts_of(files, {"train.py": after, "other.py": other.format("", "nn.LayerNorm")})
    assert [d.path for d in doubts if d.code == "AMP653"] == ["train.py"] * told


@pytest.mark.parametrize(("imported", "told"), [("", 0), ("import export\n", 1)])
def test_a_file_that_is_loaded_by_no_name_in_sight_is_of_no_program(imported: str, told: int) -> None:
    """`import_module(anything)` might load each file there is."""
    wrapped = WRAP.format(
        imports="from apex.parallel import DistributedDataParallel as DDP", optimizer="torch.optim.SGD", wrap="DDP"
    )
    wrapped = f"import plugins\n{imported}{wrapped}"
    now = wrapped.replace("from apex.parallel import DistributedDataParallel as DDP", "").replace("DDP(", "Native(")
    export = SAVE.format(test="if isinstance(model, torch.nn.parallel.DistributedDataParallel)")
    files = {
        "train.py": wrapped,
        "save.py": "def save(*given):\n    pass\n",
        "plugins.py": "from importlib import import_module\n\ndef load(name):\n    return import_module(name)\n",
        "plugin.py": "import torch\nimport export\n\nclass Net(torch.nn.Module):\n    pass\n",
        "export.py": export,
    }
    assert len([d for d in doubts_of(files, {"train.py": now}) if d.code == "AMP653"]) == told
