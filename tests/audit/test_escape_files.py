"""Half values that reach code of other files: a criterion that a factory makes, what a method gives, what is saved: AMP535."""

from __future__ import annotations

import pytest

from amp_migrate.audit import Doubt
from tests.audit.helpers import doubts_of

NET = """
import torch

class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, width)

    def forward(self, x):
        return self.linear(x)

class Net(torch.nn.Module):
    def __init__(self, block=Block, depth=2):
        super().__init__()
        self.body = self._make(block, depth)
        self.head = torch.nn.Linear(4, 2)

    def _make(self, block, depth):
        layers = []
        layers.append(block(4))
        for _ in range(1, depth):
            layers.append(block(4))
        return torch.nn.Sequential(*layers)

    def forward(self, x):
        features = self.body(x)
        return self.head(features), features
"""
LOSSES = """
import torch
import torch.nn.functional as F

def distance(x, y):
    dist = torch.pow(x, 2).sum(1, keepdim=True) + torch.pow(y, 2).sum(1, keepdim=True).t()
    dist.addmm_(1, -2, ARGUMENTS)
    return dist

class Ranking:
    def __call__(self, features, target, normalize=False):
        if normalize:
            features = features / features.norm()
        return distance(features, features).mean()

def make_loss(args):
    ranking = Ranking()
    if args.plain:
        def loss_func(score, features, target):
            return F.cross_entropy(score, target)
    else:
        def loss_func(score, features, target):
            return F.cross_entropy(score, target) + ranking(features, target)
    return loss_func
"""
TRAINER = """
import torch
from net import Net
{imports}

class Trainer:
    def __init__(self, optimizer, criterion):
        self.model = Net()
        self.optimizer = optimizer
        self.criterion = criterion
        {setup}

    def step(self, x, y):
        {region}
            score, features = self.model(x)
            loss = {call}
        {backward}
"""
MAIN = """
import sys
import torch
from losses import Ranking, make_loss
from trainer import Trainer

Trainer(torch.optim.SGD([], lr=0.1), {criterion}).step(1, 2)
"""


def of_criterion(
    level: str, arguments: str = "x, y.t()", criterion: str = "make_loss(sys)", call: str = ""
) -> list[Doubt]:
    call = call or "self.criterion(score, features, y)"
    before = {
        "net.py": NET,
        "losses.py": LOSSES.replace("ARGUMENTS", arguments),
        "main.py": MAIN.format(criterion=criterion),
        "trainer.py": TRAINER.format(
            imports="from apex import amp",
            setup=f"self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level='{level}')",
            region="if x is not None:",
            call=call,
            backward="with amp.scale_loss(loss, self.optimizer) as scaled:\n            scaled.backward()",
        ),
    }
    after = TRAINER.format(
        imports="",
        setup="self.scaler = torch.amp.GradScaler('cuda')",
        region="with torch.autocast('cuda', dtype=torch.float16):",
        call=call,
        backward="self.scaler.scale(loss).backward()",
    )
    return [d for d in doubts_of(before, {"trainer.py": after}) if d.code in ("AMP535", "AMP542")]


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize(
    ("criterion", "call"),
    [
        ("make_loss(sys)", ""),
        ("{'all': make_loss(sys)}", "self.criterion['all'](score, features, y)"),
        ("Ranking()", "self.criterion(features, y)"),
    ],
)
def test_an_in_place_product_that_a_criterion_reaches_is_refused_where_the_region_is(
    level: str, criterion: str, call: str
) -> None:
    """However the criterion is kept: a function that a factory gives, in a dictionary, an object that is called."""
    (doubt,) = [d for d in of_criterion(level, criterion=criterion, call=call) if d.verdict == "refuse"]
    assert doubt.path == "trainer.py"  # losses.py does not change
    assert "losses.py, dist.addmm_(" in doubt.message
    assert "raises" in doubt.message


@pytest.mark.parametrize(
    ("arguments", "criterion"),
    [
        ("x.float(), y.t().float()", "make_loss(sys)"),
        ("x, y.t()", "torch.nn.CrossEntropyLoss()"),
        ("x.to(dist), y.t().to(dist)", "make_loss(sys)"),
    ],
)
def test_one_of_float32_values_is_right(arguments: str, criterion: str) -> None:
    assert not [d for d in of_criterion("O1", arguments, criterion) if d.verdict == "refuse"]


BOT = """
import torch

class Base:
    def __init__(self, model):
        self.model = model

    def pick(self, output):
        return output

    def batch(self, x):
        {region}
            output = self.pick(self.model(x))
        return output

    def predict(self, loader):
        outputs, targets = [], []
        for x, y in loader:
            outputs.append(self.batch(x){leaves})
            targets.append(y)
        return torch.cat(outputs), torch.cat(targets)

class Other(Base):
    def pick(self, output):
        return output
"""
SCRIPT = """
import torch
from bot import Other
{imports}

model = torch.nn.Linear(4, 2).cuda()
{setup}
bot = Other(model)
logits, targets = bot.predict(loader)
{use}
"""


def of_bot(level: str, use: str, leaves: str = ".cpu()", now: str | None = None) -> list[Doubt]:
    setup = f"model = amp.initialize(model, opt_level='{level}')"
    region = "with torch.autocast('cuda', dtype=torch.float16):"
    before = {
        "bot.py": BOT.format(region="if x is not None:", leaves=leaves),
        "script.py": SCRIPT.format(imports="from apex import amp", setup=setup, use=use),
    }
    after = {
        "bot.py": BOT.format(region=region, leaves=leaves if now is None else now),
        "script.py": SCRIPT.format(imports="", setup="", use=use),
    }
    return [d for d in doubts_of(before, after) if d.code == "AMP535" and d.path == "script.py"]


@pytest.mark.parametrize(
    ("level", "use", "leaves"),
    [
        ("O1", "probabilities = torch.softmax(logits, dim=-1)", ".cpu()"),
        ("O1", "array = logits.numpy()", ".cpu()"),
        ("O1", "torch.save({'logits': logits}, 'out.pt')", ".cpu()"),
        ("O2", "probabilities = torch.softmax(logits, dim=-1)", ""),
    ],
)
def test_what_a_method_gives_is_followed_into_the_file_that_calls_it(level: str, use: str, leaves: str) -> None:
    """Through a list of `.cpu()`, `torch.cat`, a tuple, and methods that a subclass may override."""
    assert of_bot(level, use, leaves)
    assert not of_bot(level, use, leaves, now=f".float(){leaves}")
    assert not of_bot(level, use.replace("logits", "targets"), leaves)


def test_under_o1_what_stayed_on_the_device_was_half() -> None:
    assert not of_bot("O1", "total = torch.sigmoid(logits)", "")
    assert of_bot("O1", "total = torch.sigmoid(logits)")


STORE = """
import torch
from forward import run
{imports}

def evaluate(model, loader):
    kept = {{"left": [], "pred": []}}
    for data in loader:
        outputs, losses = run(model, data)
        kept["left"].append(data["left"][0].cpu())
        kept["pred"].append(outputs["pred"].data[0]{leaves})
    {use}

def main(loader):
    model = torch.nn.Linear(4, 2).cuda()
    {setup}
    evaluate(model, loader)

main([])
"""
RUN = """
def run(model, data):
    {region}
        outputs = {{"pred": model(data["left"])}}
    return outputs, None
"""
FILES = """
import torch

def write(kept):
    with open("out.dat", "wb") as file:
        torch.save(kept, file)
    for key in kept:
        kept[key].clear()
"""


@pytest.mark.parametrize(
    ("use", "leaves", "told"),
    [
        ("torch.save(kept, 'out.pt')", ".cpu()", True),
        ("from files import write\n    write(kept)", ".cpu()", True),
        ("kept['left'][0].numpy()", ".cpu()", False),
        ("kept['pred'][0].numpy()", ".cpu()", True),
        ("torch.save(kept['left'], 'out.pt')", ".cpu()", False),
        ("torch.save(kept, 'out.pt')", ".float().cpu()", False),
        ("torch.save(kept, 'out.pt')", "", False),  # half under O1, too
    ],
)
def test_what_is_kept_by_key_reaches_a_file(use: str, leaves: str, told: bool) -> None:
    region = "with torch.autocast('cuda', dtype=torch.float16):"
    setup = "model = amp.initialize(model, opt_level='O1')"
    before = {
        "evaluate.py": STORE.format(imports="from apex import amp", use=use, leaves=leaves, setup=setup),
        "forward.py": RUN.format(region="if True:"),
        "files.py": FILES,
    }
    after = {
        "evaluate.py": STORE.format(imports="", use=use, leaves=leaves, setup="pass"),
        "forward.py": "import torch\n" + RUN.format(region=region),
    }
    assert bool([d for d in doubts_of(before, after) if d.code == "AMP535"]) is told


OVERLAP = """
    import torch

    class Overlap(torch.nn.Module):
        def forward(self, outputs, targets):
            p = torch.sigmoid(outputs)
            return 1 - (p * targets).sum() / (p + targets).sum()
    """
CHOSEN = """
    import losses
    import torch
    from apex import amp

    def main(conf, loader):
        model = torch.nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        criterion = {"mask": losses.__dict__[conf["loss"]](**conf["params"]).cuda()}
        model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
        for x, y in loader:
            loss = criterion["mask"](model(x), y)
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
            optimizer.step()
    """
CHOSEN_NOW = """
    import losses
    import torch

    def main(conf, loader):
        model = torch.nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        criterion = {"mask": losses.__dict__[conf["loss"]](**conf["params"]).cuda()}
        scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = criterion["mask"](model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    """


def test_a_loss_that_settings_choose_among_those_of_a_file() -> None:
    """What O2 gave in float32 is half in the region, and so is what such a loss makes of it."""
    found = doubts_of({"train.py": CHOSEN, "losses.py": OVERLAP}, {"train.py": CHOSEN_NOW})
    told = [(d.path, d.line, d.verdict) for d in found if d.code == "AMP535"]
    assert told == [("losses.py", 5, "review")]
    cast = OVERLAP.replace("sigmoid(outputs)", "sigmoid(outputs.float())")
    assert "AMP535" not in {
        d.code for d in doubts_of({"train.py": CHOSEN, "losses.py": cast}, {"train.py": CHOSEN_NOW})
    }
