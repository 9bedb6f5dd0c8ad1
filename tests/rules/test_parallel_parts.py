"""What torch's DistributedDataParallel is given, and what is said of it, for the parts of a model that take part in its training."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.rules.helpers import rewrite, run_alone

MODES = """
    import torch
    from torch import nn
    from apex.parallel import DistributedDataParallel as DDP

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.g = nn.Linear(2, 2)
            self.d = nn.Linear(2, 2)

        def forward(self, x, mode):
            if mode == "generator":
                return self.d(self.g(x)).sum()
            with torch.no_grad():
                fake = self.g(x)
            return self.d(fake).sum()

    def train(loader):
        model = Both()
        model = DDP(model, delay_allreduce=True)
        for x in loader:
            model(x, mode="generator").backward()
            model(x, mode="discriminator").backward()
        return model
    """
RUN = """
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
train([torch.ones(1, 2)] * 3)
print("trained")
torch.distributed.destroy_process_group()
"""
UNFINISHED = "Expected to have finished reduction in the prior iteration"


def test_a_model_of_several_modes_trains(tmp_path: Path) -> None:
    result = rewrite(MODES)
    assert "DDP(model, find_unused_parameters=True)" in (result.after or "")
    assert not [f for f in result.findings if f.code == "AMP651"]
    assert run_alone(tmp_path, (result.after or "") + RUN)[0] == "trained"
    plain = textwrap.dedent(MODES).replace("apex.parallel", "torch.nn.parallel").replace("delay_allreduce=True", "")
    printed, errors = run_alone(tmp_path, plain + RUN)
    assert not printed
    assert UNFINISHED in errors  # which waits for the generator's gradients


# -- what is said --------------------------------------------------------------------------------------------------------

GRADIENTS, BUFFERS = "raises where a parameter gets no gradient", "broadcasts buffers before forwards"

TRAINED = """
    import torch
    from torch import nn
    from apex.parallel import DistributedDataParallel as DDP
    {imports}

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(2, 2)
            {norm}

        def forward(self, x):
            return self.body(x)

    def train(model, teacher, loader):
        for x in loader:
            with torch.no_grad():
                goal = teacher(x)
            loss = (model(x) - goal).mean()
            loss.backward()

    def main(args, loader):
        model = {made}
        teacher = Net()
        {wrap}
        train(model, teacher, loader)
    """


def _said(wrap: str = "model = DDP(model)", norm: str = "", imports: str = "", made: str = "Net()") -> tuple[str, str]:
    result = rewrite(TRAINED.format(wrap=wrap, norm=norm, imports=imports, made=made))
    (finding,) = [f for f in result.findings if f.code == "AMP601"]
    return finding.message, finding.review


@pytest.mark.parametrize(
    ("norm", "imports", "found"),
    [
        ("", "", False),
        ("", "import numpy as np", False),
        ("", "from torchvision import transforms", False),
        ("self.register_buffer('mean', torch.zeros(2))", "", False),  # which is the same on every rank
        ("self.register_buffer('mean', torch.zeros(2)); self.mean.copy_(torch.ones(2))", "", True),
        ("self.register_buffer('mean', torch.zeros(2)); self.mean[0] += 1", "", True),
        ("self.register_buffer('mean', torch.zeros(2)); self.mean = self.mean + 1", "", True),
        ("self.register_buffer(name, torch.zeros(2))", "", True),
        ("self.norm = nn.BatchNorm1d(2)", "", True),
        ("self.norm = getattr(nn, self.kind)(2)", "", True),
        ("self.body = nn.utils.spectral_norm(self.body)", "", True),
        ("self.seen = models.vgg16()", "from torchvision import models", False),
        ("self.seen = torchvision.models.vgg16(pretrained=True)", "import torchvision", False),
        ("self.seen = models.vgg16_bn()", "from torchvision import models", True),
        ("self.seen = getattr(models, kind)()", "from torchvision import models", True),
        ("self.seen = models.__dict__[kind]()", "from torchvision import models", True),
        ("self.seen = resnet18()", "from torchvision.models import resnet18", True),
        ("", "from timm import create_model", True),
        ("", "import importlib", True),
    ],
)
def test_buffers_are_told_of_where_there_may_be_some_that_change(norm: str, imports: str, found: bool) -> None:
    message, _ = _said(norm=norm, imports=imports)
    assert (BUFFERS in message) is found


@pytest.mark.parametrize(
    ("wrap", "found"),
    [
        ("model = DDP(model)", True),
        ("teacher = DDP(teacher)", False),
        ("teacher = DDP(teacher)\n        teacher(loader[0]).sum().backward()", True),
        ("teacher = DDP(teacher)\n        teacher.module(loader[0])", True),
        ("teacher = DDP(teacher)\n        fit(teacher)", True),  # out of sight
        ("teacher = DDP(teacher)\n        teacher.module.penalty(loader[0]).backward()", True),
        ("teacher = DDP(teacher)\n        print(len(teacher))", False),
        ("teacher = DDP(teacher)\n        teacher.eval(); teacher.module.body.cuda()", False),
        ("teacher = DDP(teacher); kept = teacher\n        kept(loader[0])", True),
        ("teacher = DDP(teacher); kept = [teacher]\n        kept[0](loader[0])", True),
    ],
)
def test_a_model_that_runs_without_gradients_waits_for_none(wrap: str, found: bool) -> None:
    assert (GRADIENTS in _said(wrap)[0]) is found


@pytest.mark.parametrize(
    ("made", "found"),
    [
        ("models.resnet18()", False),
        ("models.__dict__[args.arch](pretrained=True)", True),  # may be one with a head beside, that a loss leaves out
        ("getattr(models, args.arch)()", True),
        ("models.inception_v3()", True),
        ("models.detection.ssd300_vgg16()", True),
        ("models.resnet18() if args.small else Net()", True),
        ("Net()", True),
    ],
)
def test_all_parameters_of_a_classifier_of_torchvisions_take_part(made: str, found: bool) -> None:
    message, _ = _said(
        "model.cuda()\n        model = DDP(model)", imports="import torchvision.models as models", made=made
    )
    assert (GRADIENTS in message) is found


NATIVE = (
    "if args.native:\n            model = nn.parallel.DistributedDataParallel(model, device_ids=[args.gpu])\n        "
)
APEX = "if args.apex:\n            model = DDP(model)"


@pytest.mark.parametrize(
    ("wrap", "said"),
    [
        (f"{NATIVE}else:\n            model = DDP(model)", "the native branch stays"),
        (NATIVE + APEX, "with the arguments of line 26, where the same model is wrapped without Apex"),
        (
            NATIVE + APEX.replace("(model", "(model, prof=True, device_ids=[args.gpu]"),
            "as in line 26, where the same model",
        ),
        (NATIVE.replace("(model", "(model.body") + APEX, None),
        (NATIVE.replace("            model =", "            args = load(); model =") + APEX, None),
        (f"model = nn.parallel.DistributedDataParallel(model)\n        {APEX}", None),
    ],
)
def test_a_program_that_wraps_the_same_model_without_apex_knows_what_it_needs(wrap: str, said: str | None) -> None:
    message, review = _said(wrap)
    assert (GRADIENTS in message) is (said is None)
    assert said is None or said in message
    assert review == ("look" if said is None else "as-is")


# -- branches that have become the same ------------------------------------------------------------------------------------

TWO = """
    import torch
    from torch import nn
    from apex import amp
    from apex.parallel import DistributedDataParallel as DDP

    def main(args, model, head, optimizer, loader):
        if args.apex:
            [model, head], optimizer = amp.initialize([model, head], optimizer, opt_level="O1")
            model = DDP(model)
            head = DDP(head)
        else:
            {other}
        for x in loader:
            loss = head(model(x)).sum()
            if args.apex:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()
    """
MODEL, HEAD = ("{0} = {1}({0}, device_ids=[args.gpu])".format(name, "{}") for name in ("model", "head"))
FULL = "torch.nn.parallel.DistributedDataParallel"


@pytest.mark.parametrize(
    ("other", "folded"),
    [
        ((MODEL.format(FULL), HEAD.format(FULL)), True),
        (
            (MODEL.format("nn.parallel.DistributedDataParallel"), HEAD.format("nn.parallel.DistributedDataParallel")),
            True,
        ),
        ((HEAD.format(FULL), MODEL.format(FULL)), False),
        ((MODEL.format(FULL),), False),
        ((MODEL.format(FULL), HEAD.format(FULL), "print('without Apex')"), False),
        ((MODEL.format("nn.DataParallel"), HEAD.format("nn.DataParallel")), False),
    ],
)
def test_branches_that_wrap_alike_once_the_set_up_is_gone_are_one(other: tuple[str, ...], folded: bool) -> None:
    after = rewrite(TWO.format(other="\n            ".join(other))).after or ""
    assert "amp.initialize" not in after
    assert after.count("model = ") == (1 if folded else 2)
    assert (
        "\n    model = DDP(model, device_ids=[args.gpu])\n    head = DDP(head, device_ids=[args.gpu])\n" in after
    ) is folded
    if folded:
        assert "if args.apex" not in after


def test_what_is_written_is_told_with_what_is_seen() -> None:
    (told,) = [f.message for f in rewrite(MODES).findings if f.code == "AMP601"]
    assert "with find_unused_parameters=True, since" in told
    assert "runs Both with no gradient for its g" in told


FREEZE = "for p in teacher.parameters():\n            p.requires_grad = False\n        "
WRAP = "teacher = DDP(teacher)"


@pytest.mark.parametrize(
    ("wrap", "found"),
    [
        (FREEZE + WRAP, True),
        (f"teacher.requires_grad_(False)\n        teacher = teacher.cuda()\n        {WRAP}", True),
        (f"teacher.eval().requires_grad_(False)\n        {WRAP}", False),  # not told
        (WRAP, False),
        (f"teacher.requires_grad_(False)\n        teacher.body.requires_grad_(True)\n        {WRAP}", False),
        (f"teacher.requires_grad_(False)\n        teacher.body.weight.requires_grad = True\n        {WRAP}", False),
        (f"teacher.requires_grad_(False)\n        teacher = Net()\n        {WRAP}", False),
        (f"teacher.requires_grad_(False)\n        teacher.head = nn.Linear(2, 2)\n        {WRAP}", False),
        (f"teacher.requires_grad_(False)\n        unfreeze(teacher)\n        {WRAP}", False),
        (f"if args.frozen:\n            teacher.requires_grad_(False)\n        {WRAP}", False),
        (FREEZE.replace("            p", "            if p.dim() > 1:\n                p") + WRAP, False),
        (FREEZE.replace("teacher", "model") + WRAP, False),
        (f"{FREEZE}{FREEZE.replace('False', 'True')}{WRAP}", False),
    ],
)
def test_torchs_class_refuses_a_model_that_is_frozen_whole(wrap: str, found: bool) -> None:
    """Nothing is written then that would raise: Apex's stays there, and is left to its owner."""
    result = rewrite(TRAINED.format(wrap=wrap, norm="", imports="", made="Net()"))
    told = [f for f in result.findings if f.code == "AMP601" and "refuses a model that is frozen whole" in f.message]
    assert [f.status for f in told] == (["manual"] if found else [])
    assert (result.after is None) is found


WITHIN = """
    import torch
    from torch import nn
    from apex.parallel import DistributedDataParallel as DDP

    class Encoder(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.body = nn.Linear(width, width)
            self.summary = nn.Linear(width, width)

        @classmethod
        def from_pretrained(cls, width):
            return cls(width)

        def forward(self, x):
            x = self.body(x)
            pooled = self.summary(x)
            return x, pooled

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = None
            self.encoder = Encoder.from_pretrained(2)
            self.out = nn.Linear(2, 1)

        def forward(self, x):
            READ
            return self.out(x).sum()

    def train(loader):
        model = Tagger()
        model = DDP(model)
        for x in loader:
            model(x).backward()
        return model
    """
BOTH = "given = self.encoder(x)\n            _, x = given"
DROPPED = "x, _ = self.encoder(x)"
WHOLE = "x = sum(self.encoder(x))"
NEXT = "\n            "


@pytest.mark.parametrize(
    ("read", "left"),
    [
        (DROPPED, True),
        ("x = self.encoder(x)[0]", True),
        ("given = self.encoder(x)\n            x = given[0]", True),
        (BOTH, False),
        ("x, y = self.encoder(x)", True),
        ("x, y = self.encoder(x)" + NEXT + "x = x + y", False),
        ("_, x = self.encoder(x)", False),
        ("x = self.encoder(x)[-1]", False),
        (WHOLE, False),
        (DROPPED + NEXT + WHOLE, False),
        (DROPPED + NEXT + "x = x + self.encoder.summary(x)", False),
    ],
)
def test_a_head_of_a_part_that_the_model_drops(read: str, left: bool) -> None:
    after = rewrite(WITHIN.replace("READ", read)).after or ""
    assert ("DDP(model, find_unused_parameters=True)" in after) is left
    assert left or "DDP(model)" in after


def test_a_model_that_drops_what_a_head_gives_trains(tmp_path: Path) -> None:
    source = WITHIN.replace("READ", DROPPED)
    result = rewrite(source)
    assert any("reads nothing of what self.summary of its self.encoder" in f.message for f in result.findings)
    assert run_alone(tmp_path, (result.after or "") + RUN)[0] == "trained"
    plain = textwrap.dedent(source).replace("apex.parallel", "torch.nn.parallel")
    assert UNFINISHED in run_alone(tmp_path, plain + RUN)[1]


def test_what_is_imported_where_it_is_used_is_answered_too() -> None:
    source = WITHIN.replace("READ", DROPPED).replace(
        "    from apex.parallel import DistributedDataParallel as DDP\n", ""
    )
    guarded = """
        if loader is not None:
            try:
                from apex.parallel import DistributedDataParallel as DDP
            except ImportError:
                raise ImportError("install apex")

            model = DDP(model)
    """
    result = rewrite(source.replace("\n        model = DDP(model)\n", guarded.rstrip(" ")))
    assert "DistributedDataParallel(model, find_unused_parameters=True)" in (result.after or "")
    assert "AMP651" not in {f.code for f in result.findings}


@pytest.mark.parametrize(
    ("read", "comment", "told"),
    [
        (BOTH, "the summary is not used, and gets no grad", False),
        (BOTH, "one of the weights gets no grad", True),
        ("x = self.encoder(x)[self.at]", "the summary is not used, and gets no grad", True),
    ],
)
def test_a_comment_of_another_model(read: str, comment: str, told: bool) -> None:
    """It was copied with the lines around it: this model reads what the part gives."""
    source = WITHIN.replace("READ", read).replace(
        "model = DDP(model)", f"# {comment}\n        model = DDP(model)".replace(", ", "\n        # ")
    )
    source = source.replace("Encoder.from_pretrained(2)", "Encoder(2)")
    result = rewrite(source)
    assert ("DDP(model, find_unused_parameters=True)" in (result.after or "")) is told
    assert "AMP651" not in {f.code for f in result.findings}
