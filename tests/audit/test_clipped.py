"""What took the place of `amp.master_params(optimizer)` are the parameters of another optimizer: AMP237."""

from __future__ import annotations

import textwrap

import pytest

from tests.audit.helpers import doubts, doubts_of, told

HEAD = """
import copy
import torch
import torch.nn.functional as F
from torch.nn.utils import clip_grad_norm_
{imports}

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.head(x)

class Critic(Net):
    pass

def build():
    net = Net()
    return net.cuda()

"""
MODEL = "model = Net()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
OTHER = "other = Critic()\nsecond = torch.optim.SGD(other.parameters(), lr=0.1)"
INITIALIZE = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
SCALER = 'scaler = torch.amp.GradScaler("cuda")'


def steps(net: str = "model", optimizer: str = "optimizer", clipped: str = "model.parameters()") -> tuple[str, str]:
    before = f"""\
{optimizer}.zero_grad()
loss = F.cross_entropy({net}(x), y)
with amp.scale_loss(loss, {optimizer}) as scaled_loss:
    scaled_loss.backward()
clip_grad_norm_(amp.master_params({optimizer}), 1.0)
{optimizer}.step()
"""
    after = f"""\
{optimizer}.zero_grad()
with torch.autocast("cuda", dtype=torch.float16):
    loss = F.cross_entropy({net}(x), y)
scaler.scale(loss).backward()
scaler.unscale_({optimizer})
clip_grad_norm_({clipped}, 1.0)
scaler.step({optimizer})
scaler.update()
"""
    return before, after


def said(text: str, step: tuple[str, str], rest: str = "") -> list[str]:
    """Verdicts for a program in which STEP and INITIALIZE stand where Apex was."""

    def written(imports: str, stepped: str, setup: str) -> str:
        lines = []
        for line in textwrap.dedent(text + rest).split("\n"):
            indent = line[: len(line) - len(line.lstrip())]
            put = {"STEP": stepped, "INITIALIZE": setup}.get(line.strip(), line.strip())
            lines.append(textwrap.indent(put, indent))
        return HEAD.format(imports=imports) + "\n".join(lines)

    old = written("from apex import amp", step[0], INITIALIZE)
    return [v for _, v in told(doubts(old, written("", step[1], SCALER)), "AMP237")]


LOOP = "INITIALIZE\nfor x, y in loader:\n    STEP\n"

WRONG = {
    "another model": (f"{MODEL}\n{OTHER}\n{LOOP}", steps(clipped="other.parameters()")),
    "another's groups": (
        f"{MODEL}\n{OTHER}\n{LOOP}",
        steps(clipped="(p for group in second.param_groups for p in group['params'])"),
    ),
    "two models of one function": (
        f"model = build()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nother = build()\n{LOOP}",
        steps(clipped="other.parameters()"),
    ),
    "out of a dictionary": (
        f"{MODEL}\nother = Critic()\nnamed = {{'other': torch.optim.SGD(other.parameters(), lr=0.1)}}\nINITIALIZE\n"
        "optimizer = named.get('other')\nfor x, y in loader:\n    STEP\n",
        steps("other"),
    ),
    "in pairs": (
        f"{MODEL}\n{OTHER}\npairs = [(other, second)]\nINITIALIZE\nfor x, y in loader:\n"
        "    for net, optimizer in pairs:\n        STEP\n",
        steps("net"),
    ),
    "one of a list": (
        f"{MODEL}\n{OTHER}\nINITIALIZE\nfor x, y in loader:\n    for opt in [optimizer, second]:\n        STEP\n",
        steps(optimizer="opt"),
    ),
    "put into a list": (
        f"{MODEL}\n{OTHER}\nopts = []\nopts.append(optimizer)\nopts.append(second)\nINITIALIZE\nfor x, y in loader:\n"
        "    for opt in opts:\n        STEP\n",
        steps(optimizer="opt"),
    ),
    "given to a function": (
        f"{MODEL}\n{OTHER}\nINITIALIZE\ndef step(net, opt, x, y):\n    STEP\nfor x, y in loader:\n"
        "    step(model, optimizer, x, y)\n    step(other, second, x, y)\n",
        steps("net", "opt"),
    ),
    "bound anew, and the optimizer not": (
        f"{MODEL}\nfirst = model\nmodel = Critic()\n{LOOP}",
        steps("first"),
    ),
    "the other field": (
        f"""
class Trainer:
    def __init__(self):
        self.net = Net()
        self.critic = Critic()
        self.optimizer = torch.optim.SGD(self.critic.parameters(), lr=0.1)
        {MODEL.splitlines()[0]}
        optimizer = self.optimizer
        INITIALIZE
        self.scaler = scaler = None

    def train(self, loader, scaler):
        for x, y in loader:
            STEP

Trainer().train(loader, None)
""",
        steps("self.critic", "self.optimizer", "self.net.parameters()"),
    ),
    "a copy": (
        f"{MODEL}\naverage = copy.deepcopy(model)\n{LOOP}",
        steps(clipped="average.parameters()"),
    ),
    "groups of another": (
        "model = Net()\nother = Critic()\ndecay = [p for n, p in other.named_parameters() if 'bias' not in n]\n"
        f"groups = [{{'params': decay}}, {{'params': other.head.parameters()}}]\noptimizer = torch.optim.SGD(groups, lr=0.1)\n{LOOP}",
        steps("other"),
    ),
    "made by a function with its model": (
        "def make():\n    net = Net()\n    return net, torch.optim.SGD(net.parameters(), lr=0.1)\n"
        f"model, optimizer = make()\nother, second = make()\n{LOOP}",
        steps(clipped="other.parameters()"),
    ),
    "groups of another that grow": (
        "model = Net()\nother = Critic()\ngroups = []\nfor name, p in other.named_parameters():\n"
        f"    groups += [{{'params': [p]}}]\noptimizer = torch.optim.SGD(groups, lr=0.1)\n{LOOP}",
        steps("other"),
    ),
    "those of another that are trained": (
        f"{MODEL}\n{OTHER}\n{LOOP}",
        steps(clipped="list(filter(lambda p: p.requires_grad, other.parameters()))"),
    ),
    "a chain of another's": (
        f"import itertools\n{MODEL}\n{OTHER}\n{LOOP}",
        steps(clipped="itertools.chain(other.parameters())"),
    ),
    "of a network that an object is given": (
        f"""
class Trainer:
    def __init__(self, net):
        self.critic = Critic()
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        {MODEL.splitlines()[0]}
        optimizer = self.optimizer
        INITIALIZE
        self.scaler = scaler = None

    def train(self, loader, scaler):
        for x, y in loader:
            STEP

Trainer(Net()).train(loader, None)
""",
        steps("self.critic", "self.optimizer", "self.critic.parameters()"),
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_another_model_s_parameters_are_refused(case: str) -> None:
    assert said(*WRONG[case]) == ["refuse"]


RIGHT = {
    "its model": (f"{MODEL}\n{LOOP}", steps()),
    "bound anew with its optimizer": (f"{MODEL}\n{LOOP}{OTHER}\nmodel, optimizer = other, second\n{LOOP}", steps()),
    "bound anew afterwards": (f"{MODEL}\n{LOOP}model = Critic()\n", steps()),
    "wrapped": (f"{MODEL}\nmodel = torch.nn.DataParallel(model)\n{LOOP}", steps()),
    "wrapped by the program": (
        "class Around(torch.nn.Module):\n    def __init__(self, net):\n        super().__init__()\n        self.net = net\n"
        f"{MODEL}\nmodel = Around(model)\n{LOOP}",
        steps(),
    ),
    "a wrapper's part": (
        "class Around(torch.nn.Module):\n    def __init__(self, net):\n        super().__init__()\n        self.net = net\n"
        f"net = Net()\nmodel = Around(net)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n{LOOP}",
        steps(clipped="net.parameters()"),
    ),
    "own groups": (
        f"{MODEL}\n{OTHER}\n{LOOP}",
        steps(clipped="(p for group in optimizer.param_groups for p in group['params'])"),
    ),
    "own groups by another name": (
        f"{MODEL}\n{LOOP}".replace("INITIALIZE", "INITIALIZE\nopt = optimizer"),
        steps(clipped="(p for group in opt.param_groups for p in group['params'])"),
    ),
    "in pairs of a zip": (
        f"{MODEL}\n{OTHER}\nINITIALIZE\nfor x, y in loader:\n"
        "    for net, opt in zip([model, other], [optimizer, second]):\n        STEP\n",
        steps("net", "opt", "net.parameters()"),
    ),
    "given with its model": (
        f"{MODEL}\n{OTHER}\nINITIALIZE\ndef step(net, opt, x, y):\n    STEP\nfor x, y in loader:\n"
        "    step(model, optimizer, x, y)\n    step(other, second, x, y)\n",
        steps("net", "opt", "net.parameters()"),
    ),
    "chosen together": (
        "if big:\n    model = Net()\n    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nelse:\n"
        f"    model = Critic()\n    optimizer = torch.optim.Adam(model.parameters())\n{LOOP}",
        steps(),
    ),
    "chosen by one test": (
        f"{MODEL}\n{OTHER}\nINITIALIZE\nopt = optimizer\nif big:\n    opt = second\nfor x, y in loader:\n"
        "    if big:\n        STEP\n",
        steps("other", "opt", "other.parameters()"),
    ),
    "made by a function with its model": (
        "def make():\n    net = Net()\n    return net, torch.optim.SGD(net.parameters(), lr=0.1)\n"
        f"model, optimizer = make()\nother, second = make()\n{LOOP}",
        steps(),
    ),
    "groups that grow": (
        "model = Net()\ngroups = []\nfor name, p in model.named_parameters():\n    groups += [{'params': [p]}]\n"
        f"optimizer = torch.optim.SGD(groups, lr=0.1)\n{LOOP}",
        steps(),
    ),
    "an optimizer around another": (
        f"{MODEL}\nimport horovod.torch as hvd\noptimizer = hvd.DistributedOptimizer(optimizer)\n{LOOP}",
        steps(),
    ),
    "parameters that a name holds": (
        f"model = Net()\nparameters = model.parameters()\noptimizer = torch.optim.SGD(parameters, lr=0.1)\n{LOOP}",
        steps(),
    ),
    "an optimizer that is wrapped in every turn of a loop": (
        f"{MODEL}\nimport horovod.torch as hvd\nfor turn in turns:\n    optimizer = hvd.DistributedOptimizer(optimizer)\n{LOOP}",
        steps(),
    ),
    "by a function out of sight": (
        f"from lib import make_optimizer\nmodel = Net()\noptimizer = make_optimizer(args, model)\n{LOOP}",
        steps(),
    ),
    "a part that is put in later": (
        "model = Net()\nhead = torch.nn.Linear(4, 2)\nmodel.head = head\n"
        f"optimizer = torch.optim.SGD(head.parameters(), lr=0.1)\n{LOOP}",
        steps(),
    ),
    "a part that a method puts in": (
        "model = Net()\nhead = torch.nn.Linear(4, 2)\nmodel.add_module('head', head)\n"
        f"optimizer = torch.optim.SGD(head.parameters(), lr=0.1)\n{LOOP}",
        steps(),
    ),
    "one key of a dictionary": (
        f"{MODEL}\n{OTHER}\nopts = {{'a': optimizer, 'b': second}}\n{LOOP}",
        steps(optimizer="opts['a']"),
    ),
    "a field that is moved and wrapped": (
        f"""
class Trainer:
    def __init__(self):
        self.model = Net()
        self.build()
        {MODEL.splitlines()[0]}
        optimizer = self.optimizer
        INITIALIZE

    def build(self):
        self.model = torch.nn.DataParallel(self.model).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train(self, loader, scaler):
        for x, y in loader:
            STEP

Trainer().train(loader, None)
""",
        steps("self.model", "self.optimizer", "self.model.parameters()"),
    ),
}


@pytest.mark.parametrize("case", RIGHT)
def test_its_own_are_let_by(case: str) -> None:
    assert said(*RIGHT[case]) == []


def test_another_file_that_makes_both() -> None:
    step = steps("net", "opt", "net.parameters()")
    wrong = steps("net", "opt", "average.parameters()")
    train = "def train(net, opt, average, loader, scaler=None):\n    for x, y in loader:\n"
    main = "import copy\nimport torch\nfrom nets import Net\nfrom fit import train\n{}net = Net()\n"
    main += "sgd = torch.optim.SGD(net.parameters(), lr=0.1)\n{}\ntrain(net, sgd, copy.deepcopy(net), loader{})\n"
    head = "import torch\nimport torch.nn.functional as F\nfrom torch.nn.utils import clip_grad_norm_\n"
    before = {
        "nets.py": "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return x\n",
        "fit.py": head + "from apex import amp\n" + train + textwrap.indent(step[0], " " * 8),
        "main.py": main.format("from apex import amp\n", 'net, sgd = amp.initialize(net, sgd, opt_level="O1")', ""),
    }
    for chosen, expected in ((step, []), (wrong, [11])):
        after = {
            "fit.py": head + train + textwrap.indent(chosen[1], " " * 8),
            "main.py": main.format("", SCALER, ", scaler"),
        }
        assert [d.line for d in doubts_of(before, after) if d.code == "AMP237"] == expected
