"""In-place products, which take no part in autocast: their arguments get the dtype of what they are written into."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite, rewrite_files
from tests.rules.trained import check_trained

PROGRAM = """
class Centers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.centers = torch.nn.Parameter(torch.randn(3, 2))

    def forward(self, x):
        dist = torch.pow(x, 2).sum(1, keepdim=True) + torch.pow(self.centers, 2).sum(1).unsqueeze(0)
        WRITE
        return dist.clamp(min=1e-6).mean()

model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
centers = Centers()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in loader:
    optimizer.zero_grad()
    loss = centers(model(x)) / 10
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    clip_grad_norm_(amp.master_params(optimizer), 10.0)
    seen.append(loss.item())
    optimizer.step()
"""

GIVING_OBJECTS = """class Given:
    pass

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.base = torch.nn.Linear(4, 8)
        self.head = torch.nn.Linear(8, 2)

    def forward(self, x):
        given = Given()
        given.features = self.head(torch.tanh(self.base(x)))
        return given

model = Net()"""
CLOSURE = """losses = {}

class Parts:
    def __init__(self):
        self.centers = Centers()

        def loss_function(given):
            return self.centers(given.features)

        losses["center"] = loss_function

parts = Parts()
"""
INITIALIZED = "[model, parts.centers], optimizer = amp.initialize([model, parts.centers], "


@pytest.mark.parametrize(
    ("write", "written"),
    [
        (
            "dist.addmm_(x, self.centers.t(), beta=1, alpha=-2)",
            "dist.addmm_(x.to(dist.dtype), self.centers.t().to(dist.dtype), beta=1, alpha=-2)",
        ),
        (
            "dist.addmm_(mat1=-2 * x, mat2=self.centers.t())",
            "dist.addmm_(mat1=(-2 * x).to(dist.dtype), mat2=self.centers.t().to(dist.dtype))",
        ),
    ],
)
def test_what_another_network_gives_is_cast_for_the_product_of_a_loss(write: str, written: str) -> None:
    assert written in check_trained(PROGRAM.replace("WRITE", write))


def test_a_product_of_float32_values_is_left_alone() -> None:
    text = check_trained(PROGRAM.replace("WRITE", "dist.addmm_(x.float(), self.centers.t(), beta=1, alpha=-2)"))
    assert "dist.addmm_(x.float(), self.centers.t(), beta=1, alpha=-2)" in text


def test_what_has_no_name_to_take_the_dtype_of_is_refused() -> None:
    source = PROGRAM.replace("WRITE", "(dist + 0).addmm_(x, self.centers.t(), beta=1, alpha=-2)")
    result = rewrite(f"import torch\nfrom apex import amp\nloader = []\nseen = []\n{source}")
    assert result.after is None
    assert [f.code for f in result.findings if f.status == "manual" and "addmm_" in f.message] == ["AMP542"]


def test_a_loss_of_another_file_is_cast_there() -> None:
    losses = """
        import torch

        def distance(x, y):
            dist = x.pow(2).sum(1, keepdim=True) + y.pow(2).sum(1, keepdim=True).t()
            dist.addmm_(1, -2, x, y.t())
            return dist
    """
    train = """
        import torch
        from apex import amp
        from losses import distance

        model = torch.nn.Linear(4, 2).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x in torch.randn(4, 3, 4).cuda():
            features = model(x)
            loss = distance(features, features).mean()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
    """
    results = rewrite_files({"losses.py": losses, "train.py": train})
    assert "dist.addmm_(1, -2, x.to(dist.dtype), y.t().to(dist.dtype))" in (results["losses.py"].after or "")
    (told,) = [f for f in results["losses.py"].findings if f.code == "AMP542"]
    assert told.status == "done"
    assert results["train.py"].after is not None


MASKED = """
class Margin(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.out = build()
        self.register_buffer("shift", torch.zeros(1))

    def forward(self, x):
        cosine = self.out(x)
        hard = cosine > 0.0
        HARD
        return cosine

    def volume(self, x):
        kept = torch.zeros(len(x), 1)
        mask = x.pow(2).sum(dim=1) > 1
        kept[mask] = self.out(x[mask]).cpu()
        return kept

model = Margin()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="LEVEL")
for x, y in loader:
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    seen.append(clip_grad_norm_(amp.master_params(optimizer), 1.0))
    optimizer.step()
    with torch.no_grad():
        VOLUME
"""


@pytest.mark.parametrize(
    ("level", "hard", "volume", "written"),
    [
        ("O1", "pass", "seen.append(model.volume(x).sum())", "kept[mask] = self.out(x[mask]).cpu().to(kept.dtype)"),
        (
            "O2",
            "cosine[hard] = cosine[hard] * (self.shift + cosine[hard])",
            "pass",
            "cosine[hard] = (cosine[hard] * (self.shift + cosine[hard])).to(cosine.dtype)",
        ),
    ],
)
def test_what_a_masked_assignment_writes_is_of_the_dtype_it_is_written_into(
    level: str, hard: str, volume: str, written: str
) -> None:
    text = check_trained(MASKED.replace("LEVEL", level).replace("HARD", hard).replace("VOLUME", volume))
    assert written in text


@pytest.mark.parametrize(
    "mask",
    [
        "hard.byte().bool()",
        "hard.float().bool()",
        "hard & (cosine > -2)",
        "~torch.logical_not(hard)",
        "cosine.gt(0.05)",
    ],
)
def test_a_mask_is_one_however_it_is_made(mask: str) -> None:
    hard = f"chosen = {mask}\n        cosine[chosen] = cosine[chosen] * (self.shift + cosine[chosen])"
    text = check_trained(MASKED.replace("LEVEL", "O2").replace("HARD", hard).replace("VOLUME", "pass"))
    assert "cosine[chosen] = (cosine[chosen] * (self.shift + cosine[chosen])).to(cosine.dtype)" in text


def test_what_a_model_gives_in_an_object_is_cast_for_the_product_of_a_closure() -> None:
    source = PROGRAM.replace("WRITE", "dist.addmm_(x, self.centers.t(), beta=1, alpha=-2)")
    source = source.replace(
        "model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))",
        GIVING_OBJECTS,
    ).replace("centers(model(x)) / 10", 'losses["center"](model(x)) / 10')
    source = source.replace("centers = Centers()\n", CLOSURE)
    source = source.replace("model, optimizer = amp.initialize(model, ", INITIALIZED)
    assert "dist.addmm_(x.to(dist.dtype), self.centers.t().to(dist.dtype), beta=1, alpha=-2)" in check_trained(source)


MARGIN = """
class Margin(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.power = True

    def forward(self, x):
        cosine = torch.tanh(self.layer(x))
        index = torch.zeros(cosine.size(0), 1, dtype=torch.long)
        chosen = cosine.gather(1, index)
        if self.power:
            final = torch.pow(chosen, 2)
        else:
            final = chosen - 0.2
        WRITE
        return cosine

model = Margin()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O2", loss_scale=128.0)
for x, y in loader:
    optimizer.zero_grad()
    loss = (model(x) - y.mean()).pow(2).mean() / 10
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    clip_grad_norm_(amp.master_params(optimizer), 10.0)
    seen.append(loss.item())
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("write", "written"),
    [
        ("cosine = cosine.scatter(1, index, final)", "cosine.scatter(1, index, final.to(cosine.dtype))"),
        (
            "cosine = torch.scatter(cosine, 1, index, src=final)",
            "torch.scatter(cosine, 1, index, src=final.to(cosine.dtype))",
        ),
        (
            "cosine = cosine.index_add(1, index[0], 2 * final, alpha=2)",
            "cosine.index_add(1, index[0], (2 * final).to(cosine.dtype), alpha=2)",
        ),
        (
            "cosine = cosine.masked_scatter(cosine > 2, final)",
            "cosine.masked_scatter(cosine > 2, final.to(cosine.dtype))",
        ),
        (
            "cosine = cosine.clone()\n        cosine.index_put_((index[:, 0],), final, accumulate=True)",
            "cosine.index_put_((index[:, 0],), final.to(cosine.dtype), accumulate=True)",
        ),
    ],
)
def test_what_is_written_into_half_is_cast_where_it_is_float32_on_one_way(write: str, written: str) -> None:
    assert written in check_trained(MARGIN.replace("WRITE", write))


def test_a_write_into_what_has_no_name_is_refused() -> None:
    source = MARGIN.replace("WRITE", "cosine = (cosine + 0).scatter(1, index, final)")
    result = rewrite(f"import torch\nfrom apex import amp\nloader = []\nseen = []\n{source}")
    assert result.after is None
    assert [f.code for f in result.findings if f.status == "manual" and "scatter" in f.message] == ["AMP542"]


OF_A_CLASS = """
class Losses:
    def masked(labels, ys):
        labels.masked_scatter_(labels < 0, ys)
        return (labels - ys).pow(2).mean() / 10

    def kept(self, labels, ys):
        labels.masked_scatter_(labels < 0, ys)
        return (labels - ys).pow(2).mean() / 10

class Own(Losses):
    def kept(self, labels, ys):
        return Losses.kept(self, labels, ys)

losses = Own()
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
for x, y in loader:
    optimizer.zero_grad()
    ys = model(x)
    loss = CALL(torch.ones(len(x), 2).float(), ys)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    clip_grad_norm_(amp.master_params(optimizer), 10.0)
    seen.append(loss.item())
    optimizer.step()
"""


@pytest.mark.parametrize("call", ["Losses.masked", "losses.kept"])
def test_a_function_that_its_class_alone_is_asked_for_is_given_what_it_names_first(call: str) -> None:
    """`Losses.masked(labels, ys)`, `Losses.kept(self, labels, ys)`: neither call fills the first parameter by itself."""
    after = check_trained(OF_A_CLASS.replace("CALL", call))
    function = "masked" if "masked" in call else "kept"
    body = after.partition(f"def {function}(")[2].partition("return")[0]
    assert "labels.masked_scatter_(labels < 0, ys.to(labels.dtype))" in body


MADE = """
import sys
import torch
from apex import amp
from project import Net, loader


class Distance(torch.nn.Module):
    def forward(self, x, y):
        dist = x.pow(2).sum(1, keepdim=True) + y.pow(2).sum(1, keepdim=True).t()
        dist.addmm_(x, y.t(), beta=1, alpha=-2)
        return dist.clamp(min=1e-6).mean()


KINDS = {"distance": Distance, "squares": torch.nn.MSELoss}


class Total:
    def __init__(self, entries):
        self.entries = entries

    def compute(self, **given):
        total = 0
        for entry in self.entries:
            wanted = {}
            for key, name in entry["inputs"].items():
                wanted[key] = given[name]
            total = total + entry["loss"](**wanted)
        return total


class Named(torch.nn.Module):
    def __init__(self, names):
        super().__init__()
        self.names = names
        for name in names:
            setattr(self, name, KINDS[name]())

    def forward(self, x):
        return sum(getattr(self, name)(x, x) for name in self.names)


def built(names):
    entries = []
    for name in names:
        entry = {}
        entry["loss"] = KINDS[name]()
        entries.append(entry)
    return entries


model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
criterion = MAKING
for x, y in loader:
    features = model(x)
    loss = LOSS
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
"""
LOSSES = {
    "by a mapping": ("Distance()", 'criterion(**{"x": features, "y": features})'),
    "of a list of mappings, given what it names": (
        'Total([{"loss": Distance(), "inputs": {"x": "features", "y": "features"}}])',
        "criterion.compute(features=features)",
    ),
    "by its name": ('getattr(sys.modules[__name__], "Distance")()', "criterion(features, features)"),
    "out of a list that is filled": ('built(["distance"])', 'sum(c["loss"](features, features) for c in criterion)'),
    "set by a name": ('Named(["distance"])', "criterion(features)"),
}


@pytest.mark.parametrize(("making", "loss"), LOSSES.values(), ids=list(LOSSES))
def test_a_loss_that_no_way_from_the_region_is_seen_to_may_run_in_it(making: str, loss: str) -> None:
    result = rewrite(MADE.replace("MAKING", making).replace("LOSS", loss))
    assert result.after is not None
    assert "dist.addmm_(x.to(dist.dtype), y.t().to(dist.dtype), beta=1, alpha=-2)\n" in result.after


EVALUATED = """
import torch
from project import Net, features, found


def ranked(x, y):
    dist = x.pow(2).sum(1, keepdim=True) + y.pow(2).sum(1, keepdim=True).t()
    dist.addmm_(x, y.t(), beta=1, alpha=-2)
    return dist.argsort(1)


print(ranked(features(), found()))
"""


def test_what_is_only_called_outside_of_regions_is_left_alone() -> None:
    training = MADE.replace("MAKING", "torch.nn.MSELoss()").replace("LOSS", "criterion(features, y)")
    training = training[: training.index("class Distance")] + training[training.index("model = ") :]
    source = training.replace("from project import Net, loader", "from project import Net, loader\nimport evaluated")
    results = rewrite_files({"train.py": source, "evaluated.py": EVALUATED})
    assert results["train.py"].after is not None
    assert results["evaluated.py"].after is None


def test_what_the_program_never_mentions_is_left_alone() -> None:
    source = MADE.replace('{"distance": Distance, "squares": torch.nn.MSELoss}', '{"squares": torch.nn.MSELoss}')
    source = source.replace("MAKING", "torch.nn.MSELoss()").replace("LOSS", "criterion(features, y)")
    source = source.replace("getattr(self, name)(x, x)", "self.squares(x, x)")
    result = rewrite(source + '\n\nif __name__ == "__main__":\n    print(loss)\n')
    assert result.after is not None
    assert "dist.addmm_(x, y.t(), beta=1, alpha=-2)\n" in result.after


@pytest.mark.parametrize("called", ["", "\n\nSTEPS = [ranked]\n"])
def test_what_nothing_calls_runs_in_a_region_only_if_it_is_handed_on(called: str) -> None:
    """As an evaluator that a library runs does not."""
    training = MADE.replace("MAKING", "torch.nn.MSELoss()").replace("LOSS", "criterion(features, y)")
    training = training[: training.index("class Distance")] + training[training.index("model = ") :]
    source = training.replace("from project import Net, loader", "from project import Net, loader\nimport evaluated")
    source = source.replace("criterion = ", "steps = evaluated.STEPS\ncriterion = ") if called else source
    library = EVALUATED.replace("print(ranked(features(), found()))\n", called.lstrip("\n"))
    results = rewrite_files({"train.py": source, "evaluated.py": library})
    after = results["evaluated.py"].after
    assert (after is not None and "dist.addmm_(x.to(dist.dtype)" in after) == bool(called)


@pytest.mark.parametrize(("level", "apex"), [("O1", True), ("O2", False)])
def test_it_is_said_of_the_level_that_patches_functions_that_apex_cast_them(level: str, apex: bool) -> None:
    program = PROGRAM.replace("WRITE", "dist.addmm_(x, self.centers.t(), beta=1, alpha=-2)").replace(
        '"O1"', f'"{level}"'
    )
    result = rewrite(f"import torch\nfrom apex import amp\nfrom torch.nn.utils import clip_grad_norm_\n{program}")
    (told,) = [f for f in result.findings if f.code == "AMP542" and f.status == "done"]
    assert told.message.endswith("to the dtype of dist, as Apex cast them") is apex
    assert ("as Apex" in told.message) is apex
