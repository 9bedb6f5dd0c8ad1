"""What is no forward of a network, and a switch that is not on yet: AMP531."""

from __future__ import annotations

from tests.audit.helpers import doubts, told
from tests.audit.test_precision import AFTER_EVALUATE, AFTER_HEAD, AFTER_MAIN, AFTER_TRAIN, EVALUATE, HEAD, MAIN, TRAIN


def test_a_scaler_made_only_further_on_is_not_on_yet() -> None:
    main = MAIN.replace("if args.fp16:\n", "print(evaluate(model, loader))\nif args.fp16:\n")
    after = AFTER_MAIN.replace(
        "scaler = torch",
        'scaler = torch.amp.GradScaler("cuda", enabled=False)\nprint(evaluate(model, loader))\nscaler = torch',
    )
    evaluate = AFTER_EVALUATE.replace("enabled=args.fp16", "enabled=scaler.is_enabled()")
    before = HEAD + TRAIN + EVALUATE + main
    assert not told(doubts(before, AFTER_HEAD + AFTER_TRAIN + evaluate + after), "AMP531")
    early = AFTER_MAIN.replace("print(", "scaler = torch.amp.GradScaler('cuda')\nprint(")
    found = doubts(HEAD + TRAIN + EVALUATE + MAIN, AFTER_HEAD + AFTER_TRAIN + evaluate + early)
    assert [d.message for d in found if "had not been set up" in d.message]  # on by the time of the evaluation


OBJECTS = """
class Scaler:
    def __call__(self, loss, optimizer):
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()

    def state_dict(self):
        return {}


class Holder:
    def __init__(self, model):
        self.model, self.size, self.distributed = model, 3, False

    def spread(self):
        self.model = torch.nn.parallel.DistributedDataParallel(self.model)

    def run(self, x):
        return self.model(x)


class Parts(torch.nn.Module):
    def forward(self, x):
        return self.split(x)

    def split(self, x):
        return self.head(x)

    def step(self, x):
        return self.head(x)


def train(holder, loader, optimizer, scaler, scheduler, model_name):
    print(model_name.split(":", 1), scaler.state_dict())
    for x, y in loader:
        REGION
            loss = torch.nn.functional.cross_entropy(holder.run(x), y)
        scaler(loss, optimizer)
        scheduler.step(x.size(0))


args.spread = args.fp16
model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if args.fp16:
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
holder = Holder(model)
holder.spread()
model_name = model
train(holder, loader, optimizer, Scaler(), torch.optim.lr_scheduler.StepLR(optimizer, 3), model.name)
"""


def test_objects_that_are_no_networks_run_none() -> None:
    before = HEAD + OBJECTS.replace("REGION", "if True:")
    after = AFTER_HEAD + OBJECTS.replace(
        "REGION", 'with torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):'
    ).replace(
        "        with amp.scale_loss(loss, optimizer) as scaled_loss:\n            scaled_loss.backward()\n        optimizer.step()",
        "        grad_scaler.scale(loss).backward()\n        grad_scaler.step(optimizer)\n        grad_scaler.update()",
    ).replace(
        'if args.fp16:\n    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")',
        'grad_scaler = torch.amp.GradScaler("cuda", enabled=args.fp16)',
    )
    assert not [d.message for d in doubts(before, after) if d.code == "AMP531"]
    bare = after.replace('with torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):', "if True:")
    messages = [d.message for d in doubts(before, bare) if d.code == "AMP531"]
    assert len(messages) == 1
    assert messages[0].startswith("self.model ran in half precision")


FIND = """
class Search:
    def __init__(self, index):
        self.index = index
        self.index.train(3)

def find(x):
    seen = KEPT
    place = seen.index(x)
    return place
"""


def test_a_method_of_a_list_is_no_network_whatever_it_is_called() -> None:
    def said(kept: str) -> bool:
        find, called = FIND.replace("KEPT", kept), "print(Search(build()), find(loader))\n"
        before = HEAD + TRAIN + EVALUATE + find + MAIN + called
        after = AFTER_HEAD + AFTER_TRAIN + AFTER_EVALUATE + find + AFTER_MAIN + called
        return any(d.code == "AMP531" for d in doubts(before, after))

    for kept in ("[]", "[i for i in x]", "''", "(1, 2)"):
        assert not said(kept), kept
    assert said("build()")


ITEMS = """
class Indexed:
    def __init__(self, index):
        self.index = index
        self.index.train(3)

def place(encoded, x):
    return encoded[KEY].index(x)
"""


def test_a_method_of_a_list_asked_of_an_item_is_no_network() -> None:
    def said(key: str) -> bool:
        items, called = ITEMS.replace("KEY", key), "print(Indexed(build()), place(build(), loader))\n"
        before = HEAD + TRAIN + EVALUATE + items + MAIN + called
        after = AFTER_HEAD + AFTER_TRAIN + AFTER_EVALUATE + items + AFTER_MAIN + called
        return any(d.code == "AMP531" for d in doubts(before, after))

    assert not said("'input_ids'")
    assert said("x")  # one of the networks of a list, for all that is known


CHOSEN = """
def describe(x):
    tokenizer = Tokenizer.from_pretrained(NAMED)
    return tokenizer(x)
"""


def test_what_is_made_by_the_name_of_a_model_runs_no_model() -> None:
    def said(named: str) -> bool:
        main = MAIN.replace("model, optimizer = amp", "args.model = model\n    model, optimizer = amp")
        after = AFTER_MAIN.replace("print(", "args.model = model\nprint(", 1)
        chosen, called = CHOSEN.replace("NAMED", named), "print(describe(loader))\n"
        before = HEAD + TRAIN + EVALUATE + chosen + main + called
        return any(
            d.code == "AMP531"
            for d in doubts(before, AFTER_HEAD + AFTER_TRAIN + AFTER_EVALUATE + chosen + after + called)
        )

    assert not said("args.model")
    assert said("model")
