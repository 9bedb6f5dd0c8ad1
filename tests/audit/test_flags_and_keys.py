"""What a file has only where a flag says so is read there only; what it knows Apex's classes for, it goes on knowing."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, doubts_of, told

FAST = """
    from torch import nn
    try:
        from apex.contrib.layer_norm import FastLayerNorm
        {inside}
        HAS_FAST = True
    except ImportError:
        HAS_FAST = False

    class Plain(nn.LayerNorm):
        pass

    {defined}

    def build(n):
        {test}
            {read}
        return Plain(n)
"""
CONDITIONAL = "if HAS_FAST:\n        class Quick(FastLayerNorm):\n            pass"
IN_THE_TRY = "class Quick(FastLayerNorm):\n            pass"


def fast(defined: str, test: str, read: str = "return Quick(n)", inside: str = "pass") -> str:
    return FAST.format(defined=defined, test=test, read=read, inside=inside)


@pytest.mark.parametrize(
    ("defined", "inside"), [(CONDITIONAL, "pass"), ("", IN_THE_TRY)], ids=["under the flag", "in the try"]
)
@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("if HAS_FAST:", "if True:"),
        ("if HAS_FAST and n > 8:", "if n > 8:"),
        ("if not (not HAS_FAST):", "for _ in range(1):"),
    ],
    ids=["folded", "one of two", "otherwise said"],
)
def test_a_class_that_only_a_flag_brings(defined: str, inside: str, was: str, now: str) -> None:
    found = doubts(fast(defined, was, inside=inside), fast(defined, now, inside=inside))
    assert [v for _, v in told(found, "AMP131")] == ["refuse"]
    assert "HAS_FAST, without which nothing defines it" in next(d.message for d in found if d.code == "AMP131")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            fast(CONDITIONAL, "if HAS_FAST:"), fast(CONDITIONAL, "if HAS_FAST and n > 1:"), id="the flag is asked still"
        ),
        pytest.param(fast(CONDITIONAL, "if n > 8:"), fast(CONDITIONAL, "if n > 9:"), id="it was not asked before"),
        pytest.param(
            fast("Quick = Plain\n    " + CONDITIONAL, "if HAS_FAST:"),
            fast("Quick = Plain\n    " + CONDITIONAL, "if True:"),
            id="there is another",
        ),
        pytest.param(
            fast(CONDITIONAL, "if HAS_FAST:"),
            fast("class Quick(nn.LayerNorm):\n        pass", "if True:"),
            id="everybody has it",
        ),
    ],
)
def test_names_that_are_there(before: str, after: str) -> None:
    assert told(doubts(before, after), "AMP131") == []


REGISTRY = """
    import torch
    from registry import register, COSTS
    {imports}

    def flops(layer, x):
        return x.numel()

    {entry}
"""


@pytest.mark.parametrize(
    ("entry", "now"),
    [
        ("register(apex.normalization.FusedLayerNorm)(flops)", "register(torch.nn.LayerNorm)(flops)"),
        ("COSTS[apex.normalization.FusedLayerNorm] = flops", "COSTS[torch.nn.LayerNorm] = flops"),
        ("COSTS.update({apex.normalization.FusedLayerNorm: flops})", "COSTS.update({torch.nn.LayerNorm: flops})"),
        (
            "@register(apex.normalization.FusedLayerNorm)\n    def norm(layer, x):\n        return 0",
            "@register(torch.nn.LayerNorm)\n    def norm(layer, x):\n        return 0",
        ),
        ("COSTS.register_module((apex.normalization.FusedLayerNorm, int), flops)", "pass"),
    ],
    ids=["a call", "an item", "a dictionary", "a decorator", "gone"],
)
def test_a_class_that_a_program_only_knows_by_name(entry: str, now: str) -> None:
    before = REGISTRY.format(imports="import apex", entry=entry)
    found = doubts(before, REGISTRY.format(imports="", entry=now))
    ((line, verdict),) = told(found, "AMP133")
    assert (line, verdict) == (8, "review")


def test_not_where_the_program_makes_it_and_no_more() -> None:
    before = REGISTRY.format(imports="import apex", entry="COSTS[apex.normalization.FusedLayerNorm] = flops")
    after = REGISTRY.format(imports="", entry="COSTS[torch.nn.LayerNorm] = flops")
    model = "import apex\n\nnorm = apex.normalization.FusedLayerNorm(8)\n"
    native = "import torch\n\nnorm = torch.nn.LayerNorm(8)\n"
    found = doubts_of({"costs.py": before, "model.py": model}, {"costs.py": after, "model.py": native})
    assert told(found, "AMP133") == []


def test_nor_where_it_is_the_value_that_a_key_chooses() -> None:
    before = REGISTRY.format(imports="import apex", entry="COSTS['norm'] = apex.normalization.FusedLayerNorm")
    after = REGISTRY.format(imports="", entry="COSTS['norm'] = torch.nn.LayerNorm")
    assert told(doubts(before, after), "AMP133") == []


@pytest.mark.parametrize("moved", ["", ".to(dtype)", ".cuda().half()"])
def test_a_fallback_that_is_moved_where_it_is_made(moved: str) -> None:
    text = """
        import torch
        from layers import OwnNorm

        def norm(n, dtype):
            {body}
            return made
    """
    before = text.format(
        body="try:\n                from apex.normalization import FusedLayerNorm\n"
        f"                made = FusedLayerNorm(n){moved}\n"
        f"            except ImportError:\n                made = OwnNorm(n){moved}"
    )
    after = text.format(body=f"made = torch.nn.LayerNorm(n){moved}")
    layers = "import torch\n\nclass OwnNorm(torch.nn.Module):\n    pass\n"
    found = doubts_of({"norms.py": before, "layers.py": layers}, {"norms.py": after})
    assert told(found, "AMP133") == [(9, "look")]
    assert "had OwnNorm here, and has torch.nn.LayerNorm now" in next(d.message for d in found if d.code == "AMP133")


TRAINER = """
    import torch
    IMPORT

    class Trainer:
        def __init__(self, params, fast):
            FIELDS

        def setup(self, model, optimizer):
            SETUP

        def more(self):
            return self.params["epochs"]
"""
READ = 'model, optimizer = amp.initialize(model, optimizer, opt_level=HOLDER["amp"]["level"])'


def trainer(fields: str, setup: str, imported: str = "from apex import amp") -> str:
    fields = fields.replace("\n", "\n            ")
    return TRAINER.replace("IMPORT", imported).replace("FIELDS", fields).replace("SETUP", setup)


FLAGS = {
    "one of two": 'self.params = params\nself.mixed = fast and "amp" in params',
    "of the field": 'self.params = params\nself.mixed = "amp" in self.params',
    "under a test": 'self.params = params\nself.mixed = False\nif "amp" in params:\n    self.mixed = True',
    "chosen": 'self.params = params\nself.mixed = fast if "amp" in params else None',
    "a flag of a flag": 'self.params = params\nasked = "amp" in params\nself.mixed = bool(asked and fast)',
    "an item": 'self.params = params\nfound = params.get("amp")\nself.mixed = found is not None',
}


@pytest.mark.parametrize("fields", FLAGS.values(), ids=FLAGS)
def test_what_a_flag_of_the_object_found(fields: str) -> None:
    read = READ.replace("HOLDER", "self.params")
    before = trainer(fields, f"if self.mixed:\n                {read}")
    scaler = 'self.scaler = torch.amp.GradScaler("cuda", enabled={})'
    bare = trainer(fields, scaler.format('self.params["amp"]["level"] != "O0"'), "")
    (found,) = [d for d in doubts(before, bare) if d.code == "AMP131"]
    assert found.verdict == "refuse"
    assert "self.params['amp'] is read here in every run" in found.message
    asked = trainer(fields, scaler.format('self.mixed and self.params["amp"]["level"] != "O0"'), "")
    assert not told(doubts(before, asked), "AMP131")


@pytest.mark.parametrize(
    "fields",
    [
        'self.params = params\nself.mixed = fast or "amp" in params',
        'self.params = params\nself.mixed = "amp" not in params',
        'self.params = params\nself.mixed = fast\nif "amp" in params:\n    self.mixed = True',
        'self.params = dict(params)\nself.mixed = "amp" in fast',
    ],
    ids=["or", "the contrary", "given by others too", "of something else"],
)
def test_a_flag_that_says_nothing_of_it(fields: str) -> None:
    """It is not said to have found that the entry is there; it was read where the flag is set, all the same."""
    read = READ.replace("HOLDER", "self.params")
    before = trainer(fields, f"if self.mixed:\n                {read}")
    after = trainer(
        fields, 'self.scaler = torch.amp.GradScaler("cuda", enabled=self.params["amp"]["level"] != "O0")', ""
    )
    messages = [d.message for d in doubts(before, after) if d.code == "AMP131"]
    assert not [m for m in messages if "a test had found that it is there" in m]
    assert [m for m in messages if "was read only where self.mixed" in m]


@pytest.mark.parametrize("ask", ["hasattr(args, 'amp')", "getattr(args, 'amp', None)", "args.amp is not None"])
@pytest.mark.parametrize("known", [True, False])
def test_a_flag_of_the_function(ask: str, known: bool) -> None:
    text = f"""
        import torch
        IMPORT

        def main(args, model, optimizer):
            mixed = {ask if known else "args.fast"}
            BODY
    """
    before = text.replace("IMPORT", "from apex import amp").replace(
        "BODY",
        "if mixed:\n                model, optimizer = amp.initialize(model, optimizer, opt_level=args.amp.level)",
    )
    body = 'scaler = torch.amp.GradScaler("cuda", enabled=args.amp.level != "O0")'
    held = 'scaler = torch.amp.GradScaler("cuda", enabled=mixed and args.amp.level != "O0")'

    def read(now: str) -> list[str]:
        found = doubts(before, text.replace("IMPORT", "").replace("BODY", now))
        return [d.message for d in found if d.code == "AMP131" and "is read here in every run" in d.message]

    assert bool(read(body)) is known
    assert not read(held)


HOLDING = """
    class Task:
        def __init__(self, task, args):
            self.task = task
            self.task.task = args.task

        def step(self, loss):
            {test}
                {run}
"""


def test_an_object_that_keeps_another_under_its_own_name() -> None:
    """Asked what `self.task` is, the check asked what `self.task.task` is set on, and so on."""
    before = HOLDING.format(test="if self.task is not None:", run="self.task.run(loss)")
    after = HOLDING.format(test="if True:", run="self.task.run(loss, None)")
    assert "self.task.run is read here in every run" in " ".join(d.message for d in doubts(before, after))
