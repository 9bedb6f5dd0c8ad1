"""Within one autocast region a network runs on half copies of its weights: what writes into these meanwhile is told."""

from __future__ import annotations

import textwrap

import pytest

from tests.audit.helpers import doubts, doubts_of, told

NETWORKS = """
    import copy
    import torch
    from torch import nn
    {imports}

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
            self.head = nn.Linear(4, 4)

        def forward(self, x):
            return self.head(self.body(x))
"""


def migrated(program: str, body: str, *, level: str = "O2", region: str = "", also: str = "") -> list[str]:
    """What is told of a program that runs `body` for each batch: in a region now, with Apex before."""
    classes = textwrap.dedent(NETWORKS)
    setting = textwrap.dedent(program)
    inner = textwrap.indent(textwrap.dedent(body).strip("\n"), "        ")
    before = (
        classes.format(imports="from apex import amp")
        + setting
        + f'model, opt = amp.initialize(model, opt, opt_level="{level}")\n'
        + f"for x, y in data:\n    if True:\n{inner}\n"
        + "    with amp.scale_loss(loss, opt) as scaled:\n        scaled.backward()\n    opt.step()\n"
    )
    after = (
        classes.format(imports="")
        + setting
        + 'scaler = torch.amp.GradScaler("cuda")\n'
        + f'for x, y in data:\n    with torch.autocast("cuda", dtype=torch.float16{region}):\n{inner}\n'
        + "    scaler.scale(loss).backward()\n    scaler.step(opt)\n    scaler.update()\n"
    )
    return [verdict for _, verdict in told(doubts(before, after), "AMP536")]


PLAIN = """
    model = Net().cuda()
    opt = torch.optim.SGD(model.parameters(), 0.1)
"""
AVERAGE = """
    class Average:
        def __init__(self, model):
            self.model = model
            self.shadow = {n: p.data.clone() for n, p in model.named_parameters()}
            self.kept = {}

        def swap(self):
            for name, p in self.model.named_parameters():
                self.kept[name] = p.data
                p.data = self.shadow[name]

        def back(self):
            for name, p in self.model.named_parameters():
                p.data = self.kept[name]

    model = Net().cuda()
    opt = torch.optim.SGD(model.parameters(), 0.1)
    average = Average(model)
"""
MEAN_TEACHER = """
    def update(student, teacher):
        for p, q in zip(student.parameters(), teacher.parameters()):
            q.data.mul_(0.9).add_(p.data, alpha=0.1)

    model = Net().cuda()
    teacher = copy.deepcopy(model)
    opt = torch.optim.SGD(model.parameters(), 0.1)
"""
CONTRAST = """
    class Contrast(nn.Module):
        def __init__(self):
            super().__init__()
            self.query = Net()
            self.key = Net()
            {frozen}

        def forward(self, x):
            q = self.query(x)
            k = self.key(x)
            with torch.no_grad():
                for p, r in zip(self.query.parameters(), self.key.parameters()):
                    r.data = r.data * 0.9 + p.data * 0.1
            return q, k, self.key(x)

    model = Contrast().cuda()
    opt = torch.optim.SGD(model.parameters(), 0.1)
"""
FREEZE = "for p in self.key.parameters():\n                p.requires_grad = False"
FREEZE_BY_HELPER = "freeze(self.key, False)"
HELPER = """
    def freeze(network, on):
        for p in network.parameters():
            p.requires_grad = on
"""


@pytest.mark.parametrize(
    ("program", "body"),
    [
        pytest.param(
            AVERAGE, "a = model(x)\naverage.swap()\nb = model(x)\naverage.back()\nloss = (a - b).sum()", id="an average"
        ),
        pytest.param(
            PLAIN,
            """
            kept = copy.deepcopy(model.state_dict())
            a = model(x)
            model.load_state_dict(other)
            b = model(x)
            model.load_state_dict(kept)
            loss = (a - b).sum()
            """,
            id="a state loaded",
        ),
        pytest.param(
            PLAIN,
            """
            a = model(x)
            with torch.no_grad():
                for p in model.parameters():
                    p.add_(torch.randn_like(p))
            loss = (a - model(x)).sum()
            """,
            id="noise on weights",
        ),
        pytest.param(
            PLAIN,
            "a = model(x)\nmodel.head.weight.data.mul_(2)\nloss = (a - model(x)).sum()",
            id="the weight of a part",
        ),
        pytest.param(
            PLAIN,
            "for part in x:\n    loss = model(part).sum()\n    loss.backward()\n    opt.step()",
            id="a step in it",
        ),
        pytest.param(
            "from torch_ema import ExponentialMovingAverage\n"
            + textwrap.dedent(PLAIN)
            + "ema = ExponentialMovingAverage(model.parameters(), 0.9)\n",
            "a = model(x)\nwith ema.average_parameters():\n    b = model(x)\nloss = (a - b).sum()",
            id="an average out of sight",
        ),
        pytest.param(
            MEAN_TEACHER,
            "a, b = model(x), teacher(x)\nupdate(model, teacher)\nloss = (a - b - teacher(x)).sum()",
            id="a teacher that runs twice",
        ),
        pytest.param(CONTRAST.format(frozen=""), "q, k, r = model(x)\nloss = (q * k * r).sum()", id="in a forward"),
        pytest.param(
            PLAIN,
            "def run(network):\n    return network(x)\na = run(model)\nweights = list(model.parameters())\n"
            "torch.nn.utils.vector_to_parameters(other, weights)\nloss = (a - run(model)).sum()",
            id="through functions and lists",
        ),
    ],
)
def test_weights_written_between_two_runs_are_told(program: str, body: str) -> None:
    assert migrated(program, body) == ["review"]


@pytest.mark.parametrize(
    ("program", "body"),
    [
        pytest.param(
            AVERAGE, "average.swap()\nloss = model(x).sum()\naverage.back()", id="swapped before the only run"
        ),
        pytest.param(AVERAGE, "loss = model(x).sum()\naverage.swap()\naverage.back()", id="swapped after it"),
        pytest.param(
            MEAN_TEACHER,
            "a = model(x)\nupdate(model, teacher)\nloss = (a - teacher(x)).sum()",
            id="a teacher of the same class, written before it runs",
        ),
        pytest.param(
            HELPER + CONTRAST.format(frozen=FREEZE),
            "q, k, r = model(x)\nloss = (q * k * r).sum()",
            id="no gradients asked",
        ),
        pytest.param(
            HELPER + CONTRAST.format(frozen=FREEZE_BY_HELPER),
            "q, k, r = model(x)\nloss = (q * k * r).sum()",
            id="no gradients asked, by a function",
        ),
        pytest.param(
            PLAIN,
            "a = model(x)\nfor g in opt.param_groups:\n    g['lr'] *= 0.5\nloss = (a - model(x)).sum()",
            id="options",
        ),
        pytest.param(
            PLAIN,
            "a = model(x)\nfor p in model.parameters():\n    p.grad.mul_(2)\nloss = (a - model(x)).sum()",
            id="gradients",
        ),
        pytest.param(
            PLAIN,
            "a = model(x)\nkept = model.state_dict()\nkept['step'] = 1\nloss = (a - model(x)).sum()",
            id="a dictionary of the state",
        ),
        pytest.param(
            PLAIN,
            "a = model(x)\nmodel.body[0].weight.data.mul_(2)\ntorch.clear_autocast_cache()\nloss = (a - model(x)).sum()",
            id="copies thrown away",
        ),
        pytest.param(
            PLAIN,
            "a = model(x)\nmodel.head.weight.data.mul_(2)\nwith torch.autocast('cuda', cache_enabled=False):\n"
            "    b = model(x)\nloss = (a - b).sum()",
            id="the second run makes its own",
        ),
    ],
)
def test_what_leaves_the_copies_right_is_not(program: str, body: str) -> None:
    assert migrated(program, body) == []


SWAPPED = "a = model(x)\naverage.swap()\nb = model(x)\naverage.back()\nloss = (a - b).sum()"


def test_a_region_that_keeps_no_copies_is_right() -> None:
    assert migrated(AVERAGE, SWAPPED, region=", cache_enabled=False") == []


def test_o1_kept_copies_too_until_a_backward_pass() -> None:
    assert migrated(AVERAGE, SWAPPED, level="O1") == []
    stepped = "for part in x:\n    loss = model(part).sum()\n    loss.backward()\n    opt.step()"
    assert migrated(PLAIN, stepped, level="O1") == ["review"]


def test_a_network_that_swaps_its_own_weights_in_another_file() -> None:
    networks = """
        from torch import nn

        class Byol(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
                self.mean = None

            def predict(self, x):
                return self.net(x)

            def target(self, x):
                kept = nn.utils.parameters_to_vector(self.parameters())
                nn.utils.vector_to_parameters(self.mean, self.parameters())
                y = self.predict(x)
                nn.utils.vector_to_parameters(kept, self.parameters())
                return y

            def forward(self, x):
                return self.predict(x), self.target(x)
    """
    train = """
        import torch
        from networks import Byol
        {imports}

        def train(model, opt{taken}):
            for x in data:
                {region}
                    a, b = model(x)
                    loss = (a - b).pow(2).mean()
                {backward}

        model = Byol().cuda()
        opt = torch.optim.SGD(model.parameters(), 0.1)
        {set_up}
        model = torch.nn.parallel.DistributedDataParallel(model)
        train(model, opt{taken})
    """
    before = train.format(
        imports="from apex import amp",
        taken="",
        region="if True:",
        backward="with amp.scale_loss(loss, opt) as s: s.backward()\n                opt.step()",
        set_up='model, opt = amp.initialize(model, opt, opt_level="O2")',
    )
    after = train.format(
        imports="",
        taken=", scaler",
        region='with torch.autocast("cuda", dtype=torch.float16):',
        backward="scaler.scale(loss).backward()\n                scaler.step(opt)\n                scaler.update()",
        set_up='scaler = torch.amp.GradScaler("cuda")',
    )
    found = doubts_of({"train.py": before, "networks.py": networks}, {"train.py": after})
    (doubt,) = [d for d in found if d.code == "AMP536"]
    assert (doubt.path, doubt.line, doubt.verdict) == ("train.py", 6, "review")
    assert "networks.py:14 writes into weights" in doubt.message
    assert "the second at networks.py:15" in doubt.message


FROZEN = """
    model = Net().cuda()
    opt = torch.optim.SGD(model.head.parameters(), 0.1)
    for p in model.body.parameters():
        p.requires_grad = False
    def score(x):
        with torch.no_grad():
            return model(x)
"""
SCORE = """
    model = Net().cuda()
    opt = torch.optim.SGD(model.parameters(), 0.1)
    {decorator}
    def score(x):
        {inner}
            return model(x)
"""


def scoring(decorator: str = "", inner: str = "if True:") -> str:
    return SCORE.format(decorator=decorator, inner=inner)


@pytest.mark.parametrize(
    "program",
    [
        scoring("@torch.no_grad()"),
        scoring(inner="with torch.no_grad():"),
        scoring(inner="with torch.inference_mode():"),
        scoring(inner="with torch.set_grad_enabled(False):"),
    ],
)
@pytest.mark.parametrize("level", ["O1", "O2"])
def test_a_run_with_gradients_after_one_without(program: str, level: str) -> None:
    assert migrated(program, "hard = score(x)\nloss = model(hard).sum()", level=level) == ["review"]


def test_also_where_the_model_does_so_itself() -> None:
    program = """
        class Hard(Net):
            def forward(self, x):
                with torch.no_grad():
                    scores = super().forward(x)
                return super().forward(x[scores.argmax(0)])

        model = Hard().cuda()
        opt = torch.optim.SGD(model.parameters(), 0.1)
    """
    assert "review" in migrated(program, "loss = model(x).sum()")


@pytest.mark.parametrize(
    ("program", "body", "region"),
    [
        # the copies of the run with gradients come first; nothing has gradients; none is kept; they are forgotten
        (scoring("@torch.no_grad()"), "loss = model(x).sum()\nscore(x)", ""),
        (scoring("@torch.no_grad()"), "score(x)\nloss = score(x).sum()", ""),
        (scoring("@torch.no_grad()"), "score(x)\nloss = model(x).sum()", ", cache_enabled=False"),
        (scoring("@torch.no_grad()"), "score(x)\ntorch.clear_autocast_cache()\nloss = model(x).sum()", ""),
        (scoring("@torch.enable_grad()"), "score(x)\nloss = model(x).sum()", ""),
        (scoring(inner="with torch.set_grad_enabled(True):"), "score(x)\nloss = model(x).sum()", ""),
        # another network's; parts of it that are not trained
        (PLAIN + "    other = Net()\n", "with torch.no_grad():\n    y = other(x)\nloss = model(y).sum()", ""),
        (PLAIN, "with torch.no_grad():\n    y = x * 2\nloss = model(y).sum()", ""),
    ],
)
def test_runs_that_share_no_copy_without_history(program: str, body: str, region: str) -> None:
    assert migrated(program, body, region=region) == []


def test_a_key_network_that_runs_without_gradients_for_each_of_two_views() -> None:
    program = """
        class Pair(nn.Module):
            def __init__(self):
                super().__init__()
                self.query = Net()
                self.key = Net()

            def forward(self, x):
                with torch.no_grad():
                    k = self.key(x)
                return (self.query(x) * k).sum()

        model = Pair().cuda()
        opt = torch.optim.SGD(model.parameters(), 0.1)
    """
    assert migrated(program, "loss = model(x) + model(y)") == []


@pytest.mark.parametrize(("layer", "verdicts"), [("nn.Embedding(4, 4)", []), ("nn.Linear(4, 4)", ["review"])])
def test_weights_of_layers_that_autocast_does_not_cast(layer: str, verdicts: list[str]) -> None:
    program = f"""
        class Masked(nn.Module):
            def __init__(self):
                super().__init__()
                self.mask = {layer}

            def forward(self, x):
                self.mask.weight.data[0, :].fill_(0)
                return self.mask(x)

        model = Masked().cuda()
        opt = torch.optim.SGD(model.parameters(), 0.1)
    """
    assert migrated(program, "loss = (model(x) + model(y)).sum()") == verdicts


@pytest.mark.parametrize(
    ("used", "verdicts"),
    [
        ("(self.head(x) + self.bias) * torch.exp(-self.bias[0])", []),
        ("torch.add(self.head(x), self.bias.view(-1))", []),
        ("self.head(x) @ self.bias", ["review"]),
        ("torch.matmul(self.head(x), self.bias)", ["review"]),
        ("self.bias.mul(2).sum() + blend(self.head(x), self.bias)", ["review"]),
        ("shifted(self, self.head(x))", ["review"]),
    ],
)
def test_a_parameter_that_is_only_computed_with_has_no_copies(used: str, verdicts: list[str]) -> None:
    """Copies are of what goes to an operation on the half list; who else is handed a parameter may do that."""
    program = f"""
        from library import blend

        def shifted(net, x):
            return nn.functional.linear(x, net.bias)

        class Shifted(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(4, 4)
                self.bias = nn.Parameter(torch.zeros(4, 4))

            def reset(self):
                self.bias.data.fill_(0)

            def forward(self, x):
                return {used}

        class Whole(nn.Module):
            def __init__(self):
                super().__init__()
                self.part = Shifted()

            def forward(self, x):
                self.part.reset()
                return self.part(x)

        model = Whole().cuda()
        opt = torch.optim.SGD(model.parameters(), 0.1)
    """
    if "shifted" not in used:
        program = program.replace("nn.functional.linear(x, net.bias)", "x")
    assert migrated(program, "loss = (model(x) + model(y)).sum()") == verdicts


@pytest.mark.parametrize(
    ("making", "verdicts"), [("Net.load(2)", ["review"]), ("Net()", ["review"]), ("copy.copy(0)", [])]
)
def test_an_object_that_a_class_method_makes(making: str, verdicts: list[str]) -> None:
    program = """
        class Base(nn.Module):
            @classmethod
            def load(cls, size):
                model = cls(size)
                return model

        class Hard(Base):
            def __init__(self, size=2):
                super().__init__()
                self.layer = nn.Linear(size, size)

            def forward(self, x):
                with torch.no_grad():
                    y = self.layer(x)
                return self.layer(x - y)

        model = MAKING.cuda()
        opt = torch.optim.SGD(model.parameters(), 0.1)
    """
    program = program.replace("MAKING", making.replace("Net", "Hard"))
    assert migrated(program, "loss = model(x).sum()") == verdicts


def test_a_switch_between_gradients_and_none_is_the_same_for_each_run() -> None:
    program = """
        class Frozen(nn.Module):
            def __init__(self, frozen=True):
                super().__init__()
                self.body = Net()
                self.head = nn.Linear(4, 4)
                self.frozen = frozen

            def features(self, x):
                return self.body(x)

            def forward(self, x):
                if self.frozen:
                    with torch.no_grad():
                        x = self.features(x)
                else:
                    x = self.features(x)
                return self.head(x)

        model = Frozen().cuda()
        opt = torch.optim.SGD(model.parameters(), 0.1)
    """
    assert migrated(program, "loss = (model(x) * model(y)).sum()") == []


@pytest.mark.parametrize(("again", "verdicts"), [("old", []), ("model", ["review"])])
def test_networks_that_one_function_makes(again: str, verdicts: list[str]) -> None:
    program = """
        def make():
            net = Net()
            return net.cuda()

        model = make()
        old = make()
        opt = torch.optim.SGD(model.parameters(), 0.1)
    """
    body = f"with torch.no_grad():\n    y = {again}(x)\nloss = (model(x) - y).sum()"
    assert migrated(program, body) == verdicts


@pytest.mark.parametrize(
    ("later", "verdicts"),
    [("{}", ["review"]), ("if two:\n        {}\n    else:\n        out = x", [])],
    ids=["after either branch", "under the same switch"],
)
def test_a_run_with_gradients_after_a_switch_between_gradients_and_none(later: str, verdicts: list[str]) -> None:
    program = """
        def sample(x, ask, net, two=False):
            if two:
                first = ask(x, net)
            else:
                with torch.no_grad():
                    first = ask(x, net)
            {later}
            return out

        def render(x, **settings):
            return sample(x, **settings)

        model = Net().cuda()
        opt = torch.optim.SGD(model.parameters(), 0.1)
        settings = {{"ask": lambda x, net: net(x), "net": model, "two": options.two}}
    """
    given = textwrap.dedent(program).format(later=later.format("out = ask(first, net)"))
    assert migrated(given, "loss = render(x, **settings).sum()", level="O1") == verdicts


@pytest.mark.parametrize(
    "held",
    [
        "ask = functools.partial(query, net=model)",
        "ask = functools.partial(query, model)",
        "ask = bind(model)",
        "ask = {'fine': lambda x: query(model, x)}['fine']",
        "ask = in_parts(model, options.size)",
    ],
)
def test_what_calling_a_value_runs(held: str) -> None:
    program = """
        import functools

        def query(net, x):
            return net(x)

        def bind(net):
            def bound(x):
                return query(net, x)
            return bound

        def in_parts(net, size):
            if size is None:
                return net
            def parts(x):
                return torch.cat([net(p) for p in x.split(size)])
            return parts

        def score(x):
            with torch.no_grad():
                return ask(x)

        model = Net().cuda()
        opt = torch.optim.SGD(model.parameters(), 0.1)
    """
    if held.endswith("net=model)"):
        program = program.replace("def query(net, x)", "def query(x, net)")
    given = textwrap.dedent(program) + held + "\n"
    assert migrated(given, "y = score(x)\nloss = (model(x) - y).sum()") == ["review"]


SHRUNK = """
class Block(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


class Built(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class Elastic(Built):
    def __init__(self):
        blocks = [Block(Net())]
        super().__init__(blocks)

    def shrunk(self):
        blocks = []
        for block in self.blocks:
            blocks.append(Block(Net()))
        return Built(blocks)


model, teacher = Elastic().shrunk().cuda(), Elastic().cuda()
opt = torch.optim.SGD(model.parameters(), 0.1)
same = model
"""


@pytest.mark.parametrize(("first", "verdicts"), [("teacher", []), ("same", ["review"])])
def test_parts_that_a_network_makes_in_a_method_are_its_own(first: str, verdicts: list[str]) -> None:
    body = f"with torch.no_grad():\n    soft = {first}(x)\nloss = (model(x) - soft).sum()"
    assert migrated(SHRUNK, body, level="O1") == verdicts
