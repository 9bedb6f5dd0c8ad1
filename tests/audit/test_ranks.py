"""Parameters without gradients, under torch's DistributedDataParallel."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, doubts_of, told

BEFORE = """
    import torch
    from apex.parallel import DistributedDataParallel as DDP

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.Linear(2, 2)
            self.pool = torch.nn.Linear(2, 2)

        def forward(self, x):
            return self.body(x)

    model = Net()
    model = DDP(model)
    """


def native(text: str) -> str:
    return text.replace("from apex.parallel", "from torch.nn.parallel").replace(
        "DDP(model)", "DDP(model, device_ids=[0])"
    )


def test_a_layer_that_nothing_uses() -> None:
    found = doubts(BEFORE, native(BEFORE))
    assert told(found, "AMP651") == [(14, "review")]
    assert "Net makes self.pool" in found[0].message


@pytest.mark.parametrize(("call", "expected"), [("DDP(module=model)", [(14, "review")]), ("DDP(**asked)", [])])
def test_a_model_that_is_given_by_name(call: str, expected: list[tuple[int, str]]) -> None:
    before = BEFORE.replace("DDP(model)", call)
    after = native(before).replace("DDP(module=model)", "DDP(module=model, device_ids=[0])")
    assert told(doubts(before, after), "AMP651") == expected


@pytest.mark.parametrize("use", ["self.body(self.pool(x))", 'self.body(getattr(self, "pool")(x))'])
def test_a_layer_that_is_used(use: str) -> None:
    before = BEFORE.replace("self.body(x)", use)
    assert not told(doubts(before, native(before)), "AMP651")


def test_torch_is_asked_to_look() -> None:
    after = native(BEFORE).replace("device_ids=[0]", "device_ids=[0], find_unused_parameters=True")
    assert not told(doubts(BEFORE, after), "AMP651")


def test_the_program_says_it_itself() -> None:
    before = BEFORE.replace("self.body(x)", "self.body(self.pool(x))").replace(
        "    model = Net()\n", "    model = Net()  # some parameters get None grad here\n"
    )
    assert told(doubts(before, native(before)), "AMP651") == [(14, "review")]


def test_a_sibling_passes_the_option() -> None:
    before = """
        import torch
        from apex.parallel import DistributedDataParallel as DDP

        def wrap(args, model):
            if args.fp16:
                return DDP(model)
            return torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
        """
    assert told(doubts(before, native(before)), "AMP651") == [(6, "review")]


def test_a_wrapper_that_torch_had_before_is_the_programs_own() -> None:
    before = native(BEFORE) + "\n    from apex import amp\n"
    assert not told(doubts(before, before.replace("from apex import amp", "import apex")), "AMP651")
    other = BEFORE.replace(
        "model = DDP(model)", "model = torch.nn.parallel.DistributedDataParallel(model)\n    x = DDP"
    )
    assert not told(doubts(other, native(other)), "AMP651")


@pytest.mark.parametrize("module", ["torch.nn.parallel", "torch.nn.parallel.distributed"])
def test_torchs_class_by_either_of_its_names(module: str) -> None:
    after = BEFORE.replace("from apex.parallel", f"from {module}")
    assert told(doubts(BEFORE, after), "AMP651") == [(14, "review")]


USED = BEFORE.replace("self.body(x)", "self.body(self.pool(x))")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("options = dict(find_unused_parameters=True)", "line 1 passes find_unused_parameters"),
        ("# find_unused_parameters=False", ""),
        ("# do NOT put find_unused_parameters=True here, checkpointing raises", ""),
        ("# see find_unused_parameters=True", ""),
        ("options = dict(find_unused_parameters=False)", ""),
        ("# without grad: the pooler", "line 1 says that a parameter gets no gradient"),
        ("# the pooler is not used", "line 1 says that a parameter gets no gradient"),
        ("# this branch is not used", ""),
        ("# check if there is a None grad", ""),
        ("# assert that no parameter has no grad", ""),
        ("names = [n for n in found if 'pooler' not in n]", "line 1 leaves the pooler out of the optimizer"),
        ("no_grad = ['pooler']", "line 1 lists parameters that get no gradient"),
        ("no_grad = []", ""),
    ],
)
def test_which_line_says_that_a_parameter_gets_no_gradient(line: str, said: str) -> None:
    before = f"    {line}{USED}"
    found = [d.message for d in doubts(before, native(before)) if d.code == "AMP651"]
    assert len(found) == bool(said)
    assert all(message.startswith(said) for message in found)


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("torch.nn.Module", "Base", False),  # out of sight, which may use it
        ("self.pool = torch.nn.Linear(2, 2)", "self.pool = torch.nn.ReLU()", False),
        ("self.pool = torch.nn.Linear(2, 2)", "self.pool = make(2, 2)", False),
        ("self.pool = torch.nn.Linear(2, 2)", "self.pool = torch.nn.Embedding(2, 2)", True),
        ("model = Net()\n", "model = Net()\n    model.pool(1)\n", False),
        ("model = Net()\n", "model = Net()\n    model.pool = None\n", True),
        ("model = Net()\n", "model = Net()\n    other = Other()\n    other.run = lambda self: self.pool(1)\n", True),
        ("model = Net()\n", "model = Net()\n    other = Other()\n    other.run = lambda: model.pool(1)\n", False),
        (
            "self.pool = torch.nn.Linear(2, 2)",
            "kind = torch.nn.BatchNorm1d if size else Other\n            self.pool = kind(2)",
            False,
        ),
        (
            "self.pool = torch.nn.Linear(2, 2)",
            "if size:\n                kind = Other\n            else:\n                kind = torch.nn.BatchNorm1d\n"
            "            self.pool = kind(2)",
            True,
        ),
    ],
)
def test_which_layers_are_unused(old: str, new: str, wanted: bool) -> None:
    before = BEFORE.replace(old, new)
    assert before != BEFORE
    assert bool(told(doubts(before, native(before)), "AMP651")) is wanted


ALONE = """
    import torch
    from apex.parallel import DistributedDataParallel as DDP

    def validate(loader, net):
        net.eval()
        with torch.no_grad():
            return [net(x) for x in loader]

    def main(args, model, loader):
        model = DDP(model)
        for epoch in range(3):
            for x in loader:
                model(x).sum().backward()
            {evaluation}
    """


@pytest.mark.parametrize(
    ("evaluation", "hangs"),
    [
        ("if args.local_rank == 0: validate(loader, model)", True),
        ("if torch.distributed.get_rank() == 0: model(x)", True),
        ("if args.local_rank == 0 and epoch % 2 == 0: validate(loader, model)", True),
        ("if not args.distributed or args.local_rank == 0: validate(loader, model)", False),
        ("if is_main_process(): validate(loader, net=model)", True),
        ("if args.local_rank in [-1, 0]: validate(loader, model)", True),
        ("if args.local_rank in (0, -1) and epoch: validate(loader, model)", True),
        ("if args.local_rank in [0, 1]: validate(loader, model)", False),
        ("if args.local_rank not in [-1, 0]: validate(loader, model)", False),
        ("if args.local_rank == 0: validate(loader, model.module)", False),
        ("if args.local_rank == 0: print(epoch)", False),
        ("if args.local_rank != -1: validate(loader, model)", False),
        ("validate(loader, model)", False),
    ],
)
def test_a_forward_on_one_rank_waits_for_buffers(evaluation: str, hangs: bool) -> None:
    before = ALONE.replace("{evaluation}", evaluation)
    after = before.replace("apex.parallel", "torch.nn.parallel")
    found = doubts(before, after)
    assert told(found, "AMP652") == ([(10, "review")] if hangs else [])
    assert {d.construct for d in found if d.code == "AMP652"} <= {"DistributedDataParallel"}
    for kept in ("DDP(model, broadcast_buffers=False)", "DDP(model); model.broadcast_buffers = False"):
        assert not told(doubts(before, after.replace("DDP(model)", kept)), "AMP652")


def test_a_forward_on_one_rank_through_an_attribute_and_a_closure() -> None:
    before = """
    from apex.parallel import DistributedDataParallel as DDP

    class Trainer:
        def fit(self, rank, net, loader):
            self.model = DDP(net)
            if rank == 0:
                self.evaluate(loader)

        def evaluate(self, loader):
            return [self.model(x) for x in loader]

    def main(args, net, loader):
        net = DDP(net)

        def run():
            return [net(x) for x in loader]

        if args.rank == 0:
            run()
    """
    after = before.replace("apex.parallel", "torch.nn.parallel")
    assert told(doubts(before, after), "AMP652") == [(5, "review"), (13, "review")]


HANDED = """
    import torch
    from apex.parallel import DistributedDataParallel as DDP
    from project import Net, loader


    def valid(args, model, data):
        {guard}
        for x in data:
            model(x)


    def train(gpu, args):
        torch.cuda.set_device(gpu)
        model = Net().cuda(gpu)
        model = DDP(model)
        for epoch in range(args.epochs):
            {run}
    """


def alone(run: str, guard: str = "pass", **more: str) -> list[tuple[int, str]]:
    before = HANDED.format(run=run, guard=guard)
    after = native(before).replace("device_ids=[0]", more.get("given", "device_ids=[gpu]"))
    return told(doubts(before, after), "AMP652")


@pytest.mark.parametrize(
    ("run", "guard"),
    [
        ("if gpu == 0:\n                valid(args, model, loader)", "pass"),
        ("if gpu == 0 and epoch:\n                print(valid(args, model, data=loader))", "pass"),
        ("if args.gpu == 0:\n                valid(args, model, loader)", "pass"),
        ("valid(args, model, loader)", "if args.rank == 0:\n            model(data[0])"),
        (
            'torch.distributed.init_process_group("nccl", rank=place)\n            if place == 0:\n'
            "                valid(args, model, loader)",
            "pass",
        ),
    ],
)
def test_a_model_that_one_process_runs_alone_by_way_of_functions(run: str, guard: str) -> None:
    assert [verdict for _, verdict in alone(run, guard)] == ["review"]


@pytest.mark.parametrize(
    ("run", "guard", "given"),
    [
        ("valid(args, model, loader)", "pass", "device_ids=[gpu]"),
        ("if epoch == 0:\n                valid(args, model, loader)", "pass", "device_ids=[gpu]"),
        ("if gpu == 1:\n                valid(args, model, loader)", "pass", "device_ids=[gpu]"),
        ("if gpu == 0:\n                valid(args, model.module, loader)", "pass", "device_ids=[gpu]"),
        (
            "if gpu == 0:\n                print(epoch)\n            valid(args, model, loader)",
            "pass",
            "device_ids=[gpu]",
        ),
        ("if gpu == 0:\n                valid(args, model, loader)", "pass", "broadcast_buffers=False"),
        (
            "show(rank=place)\n            if place == 0:\n                valid(args, model, loader)",
            "pass",
            "device_ids=[gpu]",
        ),
    ],
)
def test_a_model_that_all_processes_run_or_that_is_not_wrapped(run: str, guard: str, given: str) -> None:
    assert alone(run, guard, given=given) == []


HEADS = """
    import torch
    from apex import amp
    from apex.parallel import DistributedDataParallel

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.Linear(4, 4)
            self.answer = torch.nn.Linear(4, 2)
            self.match = torch.nn.Linear(4, 1)

        def forward(self, x):
            hidden = self.body(x)
            answer = self.answer(hidden)
            match = self.match(hidden)
            return answer, match

    def step(model, x, y):
        answer, match = model(x)
        return torch.nn.functional.cross_entropy(answer, y)

    def main(loader):
        model = MADE
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        model = DistributedDataParallel(model, delay_allreduce=True)
        for x, y in loader:
            with amp.scale_loss(step(model, x, y), optimizer) as scaled:
                scaled.backward()
            optimizer.step()
    """


@pytest.mark.parametrize("made", ["Net()", "Net.from_pretrained('net')"])
@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("", "", True),
        ("cross_entropy(answer, y)", "cross_entropy(answer, y) + match.mean()", False),
        ("answer, match = model(x)", "answer, match = both = model(x)", True),
        ("answer, match = model(x)", "answer, match = both = model(x)\n        print(both)", False),
        ("answer, match = model(x)", "answer, match = both = model(x)\n        print(lambda: both)", False),
        ("answer, match = model(x)", "answer, *_ = model(x)", True),
        ("answer, match = model(x)", "answer, *more = model(x)\n        print(more)", False),
        ("match = self.match(hidden)", "match = self.match(hidden)\n            answer = answer * match", False),
        ("hidden = self.body(x)", "hidden = self.body(x) * self.match(x)", False),
        ("return answer, match", "return [answer, match]", True),
        ("return answer, match", "return dict(answer=answer, match=match)", False),
    ],
)
def test_a_head_that_no_caller_reads(made: str, old: str, new: str, wanted: bool) -> None:
    before = HEADS.replace("MADE", made).replace(old, new) if old else HEADS.replace("MADE", made)
    found = [d for d in doubts(before, native(before)) if d.code == "AMP651"]
    assert [("self.match of Net" in d.message, d.verdict) for d in found] == ([(True, "review")] if wanted else [])


def test_a_head_that_no_caller_reads_where_nothing_is_trained() -> None:
    evaluation = HEADS.replace("MADE", "Net()").replace(
        "with amp.scale_loss(step(model, x, y), optimizer) as scaled", "if 1"
    )
    evaluation = evaluation.replace("scaled.backward()", "print(step(model, x, y))").replace("optimizer.step()", "pass")
    assert not [d for d in doubts(evaluation, native(evaluation)) if d.code == "AMP651"]


PARTS = """
    import torch
    from torch import nn
    from apex.parallel import DistributedDataParallel as DDP

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix = nn.Linear(2, 2)
            self.other = {other}

        def forward(self, x):
            return {attention}

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = Attention()
            self.norm = nn.BatchNorm1d(2)

        def forward(self, x):
            return self.norm(self.attention(x))

    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = {gate}

        def forward(self, x):
            return self.weights(x)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(Block(), Block())
            self.gate = Gate()

        def forward(self, x):
            return {net}

        {method}

    model = Net()
    model = DDP(model)
    """
WHOLE = {
    "other": "nn.Linear(2, 2)",
    "attention": "self.mix(x) + self.other(x)",
    "gate": "nn.Linear(2, 2)",
    "net": "self.gate(self.body(x))",
    "method": "pass",
}
FREEZE = "def train(self, mode=True):\n            super().train(mode)\n            self.freeze()\n\n        def freeze(self):\n"
FREEZE += "            for m in self.modules():\n                {}\n"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, ""),
        ({"attention": "self.mix(x)"}, "Attention makes self.other in __init__ and uses it nowhere"),
        ({"attention": "self.mix(x)", "other": "nn.ReLU()"}, ""),
        ({"net": "self.body(x)"}, "Net makes self.gate in __init__ and uses it nowhere"),
        ({"net": "self.body(x)", "gate": "nn.ReLU()"}, ""),
        ({"net": "sum(m(x) for m in self.children())"}, ""),
        ({"method": FREEZE.format("m.weight.requires_grad = False")}, "freezes a part of Net once it is wrapped"),
        ({"method": FREEZE.format("m.weight.requires_grad_(False)")}, "freezes a part of Net once it is wrapped"),
        ({"method": FREEZE.format("m.weight.requires_grad = True")}, ""),
        ({"method": "def forward_once(self, x):\n            x.requires_grad = False"}, ""),
    ],
)
def test_parts_of_the_programs_own_classes_and_what_is_frozen_later(changed: dict[str, str], said: str) -> None:
    before = PARTS.format(**{**WHOLE, **changed})
    messages = [d.message for d in doubts(before, native(before)) if d.code == "AMP651"]
    assert len(messages) == bool(said)
    assert all(said in m for m in messages)


PAST = """
    import torch
    from torch import nn
    from apex.parallel import DistributedDataParallel as DDP

    def made(size, further):
        return nn.Sequential(nn.Linear(size, further), nn.Tanh())

    class Base(nn.Module):
        def __init__(self):
            super().__init__()
            self.features = nn.Linear(2, 2)
            self.fc = {head}

        def forward(self, x):
            return self.fc(self.features(x))

        def features_of(self, x):
            return self.features(x)

        def scores_of(self, x):
            return self.fc(x)

    class Net(nn.Module):
        def __init__(self, wide=False):
            super().__init__()
            if wide:
                self.base = Base()
            else:
                self.base = Base()
            self.fc = nn.Linear(2, 2)
            self.base.load_state_dict(torch.load("base.pt"))

        def forward(self, x):
            return self.fc({used})

    def build(device):
        model = Net().to(device)
        return model

    model = build("cuda")
    model = DDP(model)
    """
SEQUENCE = "nn.Sequential(nn.Linear(2, 2), nn.ReLU())"


@pytest.mark.parametrize(
    ("used", "head", "said"),
    [
        ("self.base.features(x)", "nn.Linear(2, 2)", True),
        ("self.base.features(x)", SEQUENCE, True),
        ("self.base.features_of(x)", SEQUENCE, True),
        ("self.base.features(x)", "nn.Sequential(made(2, 2), nn.ReLU())", True),
        ("self.base.features(x)", "nn.Sequential(nn.ReLU())", False),
        ("self.base.scores_of(self.base.features(x))", SEQUENCE, False),
        ("self.base.fc(self.base.features(x))", SEQUENCE, False),
        ("self.base(x)", SEQUENCE, False),
        ("self.base.forward(x)", SEQUENCE, False),
        ("apply(self.base, self.base.features(x))", SEQUENCE, False),
    ],
)
def test_a_network_of_which_parts_run_past_its_own_forward(used: str, head: str, said: bool) -> None:
    before = PAST.format(used=used, head=head)
    messages = [d.message for d in doubts(before, native(before)) if d.code == "AMP651"]
    assert len(messages) == said
    assert all("Net runs parts of self.base past its own forward, and nothing runs its fc" in m for m in messages)


@pytest.mark.parametrize(
    ("model", "option", "told_of"),
    [
        ("Net()", "find_unused_parameters=True", True),
        ("Net()", "find_unused_parameters=False", False),
        ("Other()", "find_unused_parameters=True", False),
        ("Net()", "device_ids=[0]", False),
        ("Net()", "broadcast_buffers=True", False),
        ("Net()", "broadcast_buffers=False, find_unused_parameters=True", True),
    ],
)
def test_another_program_that_wraps_the_same_network_tells(model: str, option: str, told_of: bool) -> None:
    nets = "import torch\n\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    nets += "        self.body = torch.nn.Linear(2, 2)\n\n    def forward(self, x):\n        return self.body(x)\n"
    nets += "\nclass Other(Net):\n    pass\n"
    beside = f"import torch\nfrom nets import Net, Other\n\nmodel = {model}\n"
    beside += f"model = torch.nn.parallel.DistributedDataParallel(model, {option})\n"
    train = "from nets import Net\nIMPORT\n\nmodel = Net().cuda()\nmodel = DDP(model)\n"
    before = {
        "nets.py": nets,
        "beside.py": beside,
        "train.py": train.replace("IMPORT", "from apex.parallel import DistributedDataParallel as DDP"),
    }
    after = {"train.py": train.replace("IMPORT", "from torch.nn.parallel import DistributedDataParallel as DDP")}
    found = [d.message for d in doubts_of(before, after) if d.code == "AMP651"]
    assert [m.startswith("beside.py:5 wraps a Net with find_unused_parameters=True") for m in found] == [True] * told_of


KEPT = """
    import torch
    from apex.parallel import DistributedDataParallel as DDP

    class Base:
        def __init__(self, net, rank=0):
            self.network = net
            self._rank = rank

        def predict(self, loader):
            with torch.no_grad():
                return [self.network(x) for x in loader]

    class Trainer(Base):
        def fit(self, loader):
            for epoch in range(3):
                for x in loader:
                    self.network(x).sum().backward()
                {evaluation}

    def main(args, model, loader):
        model = DDP(model)
        trainer = Trainer({given})
        trainer.fit(loader)
    """


@pytest.mark.parametrize(
    ("given", "evaluation", "hangs"),
    [
        ("model", "if self._rank == 0: self.predict(loader)", True),
        ("model", "if self._rank == 0 and epoch: self.network(loader)", True),
        ("model, **args.others", "if self._rank == 0: self.predict(loader)", True),
        ("model", "if self._rank == 0: print(epoch)", False),
        ("model", "self.predict(loader)", False),
        ("other", "if self._rank == 0: self.predict(loader)", False),
    ],
)
def test_a_forward_on_one_rank_by_an_object_that_keeps_the_model(given: str, evaluation: str, hangs: bool) -> None:
    before = KEPT.replace("{evaluation}", evaluation).replace("{given}", given)
    after = before.replace("apex.parallel", "torch.nn.parallel")
    assert [verdict for _, verdict in told(doubts(before, after), "AMP652")] == ["review"] * hangs
