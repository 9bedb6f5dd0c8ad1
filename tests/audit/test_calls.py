"""Calls of functions whose signature a migration changed, and calls that are torch's since."""

from __future__ import annotations

import inspect
from functools import reduce
from typing import Any, cast

import pytest
import torch

from amp_migrate.audit.calls.torch_signatures import SIGNATURES
from tests.audit.helpers import doubts, doubts_of, told

BEFORE = """
    import functools
    import torch
    from apex import amp

    def step(model, optimizer, x):
        with amp.scale_loss(model(x), optimizer) as loss:
            loss.backward()
        optimizer.step()

"""
AFTER = """
    import functools
    import torch

    def step(model, optimizer, scaler, x):
        scaler.scale(model(x)).backward()
        scaler.step(optimizer)
        scaler.update()

"""


def changed(before: str, after: str) -> list[str]:
    """What is said of the calls in a program whose `step` was given a scaler."""
    found = doubts(BEFORE + before, AFTER + after)
    assert all(d.verdict == "refuse" for d in found if d.code == "AMP132")
    return [d.message for d in found if d.code == "AMP132"]


def test_calls_that_were_and_were_not_changed() -> None:
    before = """
    def run(model, optimizer, scaler, x):
        step(model, optimizer, x)
    """
    assert not changed(before, before.replace("optimizer, x)", "optimizer, scaler, x)", 1))
    assert changed(before, before) == ["step() is called here, and now x is missing"]
    assert "no parameter scale" in changed(before, before.replace("optimizer, x)\n", "optimizer, scale=1, x=x)\n"))[0]
    keywords = before.replace("optimizer, x)\n", "optimizer=optimizer, x=x)\n")
    assert changed(keywords, keywords) == ["step() is called here, and now scaler is missing"]


def test_calls_with_unpacked_arguments() -> None:
    starred = """
    def run(model, optimizer, batch):
        step(model, optimizer, *batch)
    """
    assert changed(starred, starred)
    named = """
    def run(model, optimizer, **kw):
        step(model, optimizer, **kw)
    """
    assert not changed(named, named)


def test_arguments_that_arrive_elsewhere() -> None:
    """A parameter with a default, put in before others."""
    before = """
    import torch

    def train(model, lr=0.1, epochs=1):
        pass

    train(None, 0.2, 3)
    """
    after = before.replace("model, lr", "model, scaler=None, lr")
    (found,) = [d.message for d in doubts(before, after) if d.code == "AMP132"]
    assert found.startswith("train() is called here")
    assert found.endswith("0.2 no longer arrives as lr"), "the first of them, in each run"
    assert not told(doubts(before, before.replace("epochs=1", "epochs=1, scaler=None")), "AMP132")


def test_functions_handed_on() -> None:
    handed = """
    def run(engine, model, optimizer):
        engine.on(step)
    """
    assert "handed on" in changed(handed, handed)[0]
    bound = """
    def run(engine, model, optimizer, scaler):
        engine.on(functools.partial(step, model, optimizer, scaler))
    """
    assert not changed(bound.replace("optimizer, scaler))", "optimizer))"), bound)


def test_a_method_that_only_subclasses_fill_is_not_the_one_called() -> None:
    before = """
        class Base:
            def forward_loss(self, batch):
                raise NotImplementedError

            def train(self, batch):
                self.forward_loss(batch).backward()
        """
    base = "class Base:\n            def forward_loss(self, batch"
    assert not told(doubts(before, before.replace(base, f"{base}, scaler")), "AMP132")
    filled = before.replace("raise NotImplementedError", "return batch.mean()")
    assert told(doubts(filled, filled.replace(base, f"{base}, scaler")), "AMP132")


def test_overrides_and_super() -> None:
    before = """
        class Base:
            def forward_loss(self, batch):
                raise NotImplementedError

            def train(self, batch):
                self.forward_loss(batch).backward()

        class One(Base):
            def forward_loss(self, batch):
                return batch

        class Two(One):
            def forward_loss(self, batch):
                return super().forward_loss(batch)
        """
    passed = before.replace("self.forward_loss(batch).b", "self.forward_loss(batch, self.scaler).b")
    one = passed.replace(
        "class One(Base):\n            def forward_loss(self, batch):",
        "class One(Base):\n            def forward_loss(self, batch, scaler):",
    )
    assert one != passed
    found = [d for d in doubts(before, one) if d.code == "AMP132"]
    assert found
    both = one.replace(
        "class Two(One):\n            def forward_loss(self, batch):",
        "class Two(One):\n            def forward_loss(self, batch, scaler):",
    ).replace("super().forward_loss(batch)", "super().forward_loss(batch, scaler)")
    assert not told(doubts(before, both), "AMP132")


def test_a_returned_tuple_that_grew() -> None:
    before = """
    def build(model, optimizer):
        return model, optimizer

    model, optimizer = build(1, 2)
    """
    after = before.replace("return model, optimizer", "return model, optimizer, 3")
    assert told(doubts(before, after), "AMP132")
    assert not told(doubts(before, after.replace("model, optimizer = ", "model, optimizer, scaler = ")), "AMP132")


def test_other_files() -> None:
    common = "def step(model, optimizer):\n    pass\n"
    user = "from common import step\n\nstep(1, 2)\n"
    found = doubts_of(
        {"common.py": common, "user.py": user}, {"common.py": "def step(model, optimizer, scaler):\n    pass\n"}
    )
    assert [(d.path, d.code) for d in found] == [("common.py", "AMP132")]
    assert "user.py:3" in found[0].message


# -- torch's ----------------------------------------------------------------------------------------------------------


def of_torch(before: str, after: str) -> list[str]:
    return [f"{d.verdict} {d.message}" for d in doubts(before, after) if d.code == "AMP132"]


def test_keywords_that_only_apex_swallows() -> None:
    before = """
        from apex.normalization import FusedLayerNorm
        norm = FusedLayerNorm(8, 1e-5, sequence_parallel=False)
        """
    after = "from torch import nn\nnorm = nn.LayerNorm(8, 1e-5, sequence_parallel=False)\n"
    assert "no parameter sequence_parallel" in of_torch(before, after)[0]
    assert not of_torch(before, after.replace(", sequence_parallel=False", ""))


def test_subclasses_partials_dictionaries_and_other_files() -> None:
    before = """
        import functools
        from apex.parallel import DistributedDataParallel

        class Wrapped(DistributedDataParallel):
            def __init__(self, module):
                super().__init__(module, delay_allreduce=True)

        options = {"delay_allreduce": True}
        make = functools.partial(DistributedDataParallel, delay_allreduce=True)
        model = DistributedDataParallel(model, **options)
        """
    after = before.replace("apex.parallel", "torch.nn.parallel")
    assert len(of_torch(before, after)) == 3
    assert not of_torch(before, after.replace("delay_allreduce", "find_unused_parameters"))
    layers = "from apex.normalization import FusedLayerNorm as LayerNorm\n"
    user = "from layers import LayerNorm\n\nnorm = LayerNorm(8, memory_efficient=True)\n"
    other = "from layers import LayerNorm\n\nnorm = LayerNorm(8, eps=1e-6)\n"
    now = "from torch.nn import LayerNorm\n"
    found = doubts_of({"layers.py": layers, "user.py": user, "other.py": other}, {"layers.py": now})
    assert [(d.path, d.code) for d in found] == [("layers.py", "AMP132")]
    assert not doubts_of({"layers.py": layers, "other.py": other}, {"layers.py": now})


ARGS = """
        import argparse
        import torch
        from apex import amp

        parser = argparse.ArgumentParser()
        parser.add_argument("--flag", {option})
        args = parser.parse_args()
"""


@pytest.mark.parametrize(
    ("option", "enabled", "wrong"),
    [
        ('action="store_true"', "args.flag", ""),
        ('action="store_true"', "args.flag and torch.cuda.is_available()", ""),
        ("type=str", "args.flag", "None or a str"),
        ('type=str, default="O1"', 'args.flag != "O0"', ""),
        ('type=str, default=""', 'args.flag and args.flag != "O0"', "a str"),
        ('type=str, default=""', 'bool(args.flag) and args.flag != "O0"', ""),
        ('type=str, default="O1", help="x"', 'args.flag is not None and "O%i" % 1 != args.flag', ""),
        ("type=int, default=0", "args.flag", "a int"),
        ("type=int, default=0", "args.flag > 0", ""),
        ("type=bool, default=None", "args.flag", "None"),
        ("type=lambda v: v == 'yes', default=False", "args.flag", ""),
    ],
)
def test_autocast_is_switched_by_a_bool(option: str, enabled: str, wrong: str) -> None:
    before = ARGS.format(option=option)
    after = before + f'        with torch.autocast("cuda", dtype=torch.float16, enabled={enabled}):\n            pass\n'
    found = of_torch(before, after)
    assert bool(found) is bool(wrong), found
    if wrong:
        assert f"may be {wrong}: autocast takes a bool" in found[0]


@pytest.mark.parametrize(
    ("declared", "passed", "wrong"),
    [
        ('arg = parser.add_argument\n    arg("--amp", type=str, default="")', "args.amp and args.amp != 'O0'", True),
        (
            'arg = parser.add_argument\n    arg("--amp", type=str, default="")',
            "bool(args.amp) and args.amp != 'O0'",
            False,
        ),
        ('arg = parser.add_argument\n    arg("--amp", action="store_true")', "args.amp", False),
        ('parser.add_argument("--amp", type=str, default="")', "args.amp", True),
        ("settings(parser)", "args.amp and args.amp != 'O0'", True),  # out of sight, but compared with text
        ("settings(parser)", "args.amp", False),
    ],
)
def test_a_switch_that_a_parameter_hands_to_autocast_is_a_bool(declared: str, passed: str, wrong: bool) -> None:
    """The parameter of a method of another file, which has a default that is a bool."""
    bot = """
    import torch

    class Bot:
        def __init__(self, model):
            self.model = model

        def predict(self, x{parameter}):
            {region}
                return self.model(x)
    """
    main = f"""
    import argparse
    from bot import Bot
    from net import make, settings{{imports}}

    parser = argparse.ArgumentParser()
    {declared}
    args = parser.parse_args()
    model = make()
    {{setup}}
    bot = Bot(model)
    bot.predict(1{{passed}})
    """
    region = 'with torch.autocast("cuda", dtype=torch.float16, enabled=amp_enabled):'
    before = {
        "bot.py": bot.format(parameter="", region="if True:"),
        "main.py": main.format(
            imports="\n    from apex import amp",
            setup="if args.amp:\n        model = amp.initialize(model, opt_level='O1')",
            passed="",
        ),
    }
    after = {
        "bot.py": bot.format(parameter=", amp_enabled=False", region=region),
        "main.py": main.format(imports="", setup="pass", passed=f", amp_enabled={passed}"),
    }
    found = [d.message for d in doubts_of(before, after) if d.code == "AMP132"]
    assert bool(found) is wrong, found


@pytest.mark.parametrize(
    ("option", "update", "wrong"),
    [
        ("type=float, default=1", "args.flag", True),
        ("type=float, default=1", "float(args.flag)", False),
        ("type=float, default=1.0", "args.flag", False),
        ("type=float, default=0", "args.flag or None", False),
        ("type=float, default=1", "args.flag or None", True),
        ("action='store_true'", "None if args.flag else 128", True),
        ("action='store_true'", "None if args.flag else 128.0", False),
        ("action='store_true'", "2. ** 24", False),
        ("action='store_true'", "2 ** 24", True),
    ],
)
def test_update_takes_a_float(option: str, update: str, wrong: bool) -> None:
    before = ARGS.format(option=option)
    after = before + f'        scaler = torch.amp.GradScaler("cuda")\n        scaler.update({update})\n'
    assert bool(of_torch(before, after)) is wrong


@pytest.mark.parametrize(
    ("default", "enabled", "wrong"),
    [
        ("None", "level", True),
        ("None", 'level and level != "O0"', True),
        ("None", 'bool(level and level != "O0")', False),
        ("False", "level", False),
        ("None", "level is not None", False),
    ],
)
@pytest.mark.parametrize("start", ["", "def start(**kwargs):\n    main(**kwargs)\n"])
def test_a_scaler_that_regions_ask_is_switched_by_a_bool(default: str, enabled: str, wrong: bool, start: str) -> None:
    """`is_enabled()` gives back what the scaler was given: autocast refuses None."""
    before = f"import torch\nfrom apex import amp\n\ndef main(level={default}):\n    pass\n{start}"
    region = '        with torch.autocast("cuda", enabled=scaler.is_enabled()):\n            pass\n'
    made = f'    scaler = torch.amp.GradScaler("cuda", enabled={enabled})\n    for x in data:\n'
    assert bool(of_torch(before, before.replace("    pass\n", made + region, 1))) is wrong


def test_types_of_other_arguments() -> None:
    before = "import torch\nfrom apex import amp\n"
    assert of_torch(before, "import torch\nscaler = torch.amp.GradScaler(2 ** 10)\n")
    assert of_torch(before, 'import torch\nscaler = torch.amp.GradScaler("cuda", init_scale="dynamic")\n')
    assert of_torch(before, 'import torch\nwith torch.autocast(torch.device("cuda")):\n    pass\n')
    assert not of_torch(before, 'import torch\nwith torch.autocast(torch.device("cuda").type):\n    pass\n')
    assert not of_torch(before, 'import torch\nscaler = torch.amp.GradScaler("cuda", init_scale=2 ** 10)\n')


def test_arguments_that_mean_something_to_apex_only() -> None:
    before = "from apex.parallel import SyncBatchNorm\nnorm = SyncBatchNorm(8, channel_last={})\n"
    after = "from torch.nn import SyncBatchNorm\nnorm = SyncBatchNorm(8)\n"
    assert of_torch(before.format("True"), after)[0].startswith("refuse channel_last=True")
    assert not of_torch(before.format("False"), after)
    before = "from apex.optimizers import FusedAdam\nopt = FusedAdam(params, master_weights=flag)\n"
    assert of_torch(before, "from torch.optim import AdamW\nopt = AdamW(params)\n")[0].startswith("review")
    assert not of_torch(before, before + "x = 1\n")


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_are_those_of_the_torch_installed(name: str) -> None:
    """Newer versions may take more; none takes less, or in another order."""
    actual = inspect.signature(reduce(getattr, name.split(".")[1:], cast(Any, torch))).parameters
    known = inspect.signature(eval(f"lambda {SIGNATURES[name]}: 0")).parameters
    wanted = [(p.name, p.kind, p.default is p.empty) for p in known.values()]
    there = [(p.name, p.kind, p.default is p.empty) for p in actual.values() if p.name in known]
    assert wanted == there


BOTH_WRAP = """
import torch
from apex.parallel import DistributedDataParallel as DDP

def wrap(model, args):
    if args.gpu is not None:
        model = DDP(model, delay_allreduce=True)
    else:
        model = torch.nn.parallel.DistributedDataParallel(model, OPTION)
    return model
"""
NATIVE_WRAPS = """
import torch

def wrap(model, args):
    model = torch.nn.parallel.DistributedDataParallel(model, OPTION)
    return model
"""


def test_a_branch_of_torchs_own_that_never_ran_does_now() -> None:
    """A native branch that stays for everybody must be right, though the program wrote it itself."""
    before, after = (text.replace("OPTION", "delay_allreduce=True") for text in (BOTH_WRAP, NATIVE_WRAPS))
    assert [d.verdict for d in doubts(before, after) if d.code == "AMP132"] == ["refuse"]
    before, after = (text.replace("OPTION", "device_ids=[0]") for text in (BOTH_WRAP, NATIVE_WRAPS))
    assert not [d for d in doubts(before, after) if d.code == "AMP132"]


def test_a_branch_that_stays_a_branch_is_the_programs_own_fault() -> None:
    before = BOTH_WRAP.replace("OPTION", "delay_allreduce=True")
    after = before.replace("from apex.parallel import DistributedDataParallel as DDP\n", "")
    after = after.replace(
        "DDP(model, delay_allreduce=True)", "torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])"
    )
    assert not [d for d in doubts(before, after) if d.code == "AMP132"]


def test_methods_of_tensors_on_what_is_no_tensor() -> None:
    before = """
    def score(model, x, y):
        guess = model(x)
        return torch.nn.functional.binary_cross_entropy(guess, y.to(dtype=guess.dtype))
    """
    wrong = before.replace("guess.dtype", "guess.dtype.float()")
    assert changed(before, wrong.replace("optimizer, x)", "optimizer, scaler, x)")) == [
        "guess.dtype is no tensor, and has no float()"
    ]
    assert not changed(wrong, wrong)
    assert not changed(before, before.replace("(guess,", "(guess.float(),"))


def test_values_that_are_unpacked_where_nothing_is_told_of_their_number() -> None:
    user = "\n    model, optimizer = build(1, 2)\n    print(build(1, 2))\n    for part in build(1, 2):\n        pass\n"
    for before, after in (
        ("return make(model)", "return make(model, 1)"),
        ("return model, optimizer", "return make(model)"),
        ("return make(model)", "return model, optimizer, 3"),
        ("return model, optimizer", "return model, *optimizer"),
    ):
        one, other = (f"\n    def build(model, optimizer):\n        {text}\n{user}" for text in (before, after))
        assert not [d for d in doubts(one, other) if d.code in ("AMP132", "AMP191")]


def test_a_returned_tuple_that_grew_where_nobody_unpacks_it() -> None:
    before = "\n    def build(model, optimizer):\n        return model, optimizer\n\n"
    grown = before.replace("model, optimizer\n\n", "model, optimizer, 3\n\n")
    for use in ("print(build(1, 2))", "built = build(1, 2)", "model, *rest = build(1, 2)", "first = build(1, 2)[0]"):
        assert not [d for d in doubts(f"{before}    {use}\n", f"{grown}    {use}\n") if d.code in ("AMP132", "AMP191")]


def test_a_call_of_another_file_that_was_wrong_before() -> None:
    common, now = "def step(model, optimizer):\n    pass\n", "def step(model, optimizer, scaler):\n    pass\n"
    user = "from common import step\n\nstep(1)\n"
    assert not told(doubts_of({"common.py": common, "user.py": user}, {"common.py": now}), "AMP132")


def test_a_method_of_another_class_with_the_same_name() -> None:
    before = """
        class One:
            def run(self, batch):
                return batch

        class Two:
            def run(self, batch):
                return batch

        Two().run(1)
        """
    after = before.replace("def run(self, batch)", "def run(self, batch, scaler)", 1)
    assert not told(doubts(before, after), "AMP132")


def test_a_function_that_is_handed_to_what_only_looks_at_it() -> None:
    for use in ("inspect.signature(step)", "print(step)", "isinstance(step, type)"):
        look = f"\n    def run():\n        {use}\n"
        assert not changed(look, look), use


WRAPPERS = """
    from apex.parallel import DistributedDataParallel

    class Reaching(DistributedDataParallel):
        def forward(self, *args, **kwargs):
            return super().forward(*args, **kwargs)
"""
FORWARDING = """
        def __init__(self, name, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.name = name
"""


@pytest.mark.parametrize(("extra", "first"), [("", ""), (FORWARDING, '"net", ')])
def test_what_derives_from_torchs_class_now_is_constructed_as_that_takes_it(extra: str, first: str) -> None:
    train = f"""
    import wrappers

    def wrap(model):
        return wrappers.Reaching({first}model, delay_allreduce=True)
    """
    before = {"wrappers.py": WRAPPERS + extra, "train.py": train}
    native = WRAPPERS.replace("apex.parallel", "torch.nn.parallel") + extra
    (found,) = [d for d in doubts_of(before, {"wrappers.py": native}) if d.code == "AMP132"]
    assert found.verdict == "refuse"
    assert "it has no parameter delay_allreduce (train.py:" in found.message
    right = train.replace(", delay_allreduce=True", "")
    assert not [d for d in doubts_of(before, {"wrappers.py": native, "train.py": right}) if d.code == "AMP132"]
    before["train.py"] = right
    assert not [d for d in doubts_of(before, {"wrappers.py": native}) if d.code == "AMP132"]


def test_a_method_that_only_the_wrapper_had_is_left() -> None:
    before = """
    from apex.fp16_utils import FP16_Optimizer
    from torch.optim import Adam

    def main(model, loader):
        optimizer = FP16_Optimizer(Adam(model.parameters()))
        for x in loader:
            optimizer.backward(model(x))
            max([optimizer]).clip_master_grads(1.0)
            optimizer.step()
    """
    after = """
    import torch
    from torch.optim import Adam

    def main(model, loader):
        optimizer = Adam(model.parameters())
        scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            max([optimizer]).clip_master_grads(1.0)
            scaler.step(optimizer)
            scaler.update()
    """
    said = "max([optimizer]).clip_master_grads() is called here, a method of FP16_Optimizer alone, which goes"
    assert said in [d.message for d in doubts(before, after) if d.verdict == "refuse"]
    own = "\n    class Clipper:\n        def clip_master_grads(self, norm):\n            pass\n"
    assert said not in [d.message for d in doubts(before + own, after + own)]
    clips = after.replace("max([optimizer]).clip_master_grads(1.0)", "pass")
    assert said not in [d.message for d in doubts(before, clips)]


def test_a_method_of_the_wrapper_that_nothing_ever_had_is_told() -> None:
    before = """
    from apex import amp

    def main(model, optimizer, loader):
        model, optimizer = amp.initialize(model, optimizer)
        for x in loader:
            with amp.scale_loss(model(x), optimizer) as loss:
                loss.backward()
            optimizer.clip_master_grads(1.0)
            optimizer.step()
    """
    after = """
    import torch

    def main(model, optimizer, loader):
        scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            optimizer.clip_master_grads(1.0)
            scaler.step(optimizer)
            scaler.update()
    """
    message = "optimizer.clip_master_grads() is called here, a method of FP16_Optimizer alone"
    (found,) = [d for d in doubts(before, after) if d.message.startswith(message)]
    assert (found.code, found.verdict) == ("AMP132", "review")
    others = (
        before + "\n\n    def older(optimizer):\n        return FP16_Optimizer(optimizer)\n"
    )  # out of sight: one may come
    assert not [d for d in doubts(others, after) if d.message.startswith(message)]


@pytest.mark.parametrize(
    ("handed", "known"), [("Process(target=step)", True), ("Process(step)", True), ("pool.map(step, loader)", False)]
)
def test_a_process_is_given_its_arguments_elsewhere(handed: str, known: bool) -> None:
    use = f"""
    def run(loader):
        {handed}
    """
    assert ("handed on here" in str(changed(use, use))) is not known


FUSED = """
from apex.optimizers import FusedAdam
adam = FusedAdam(params, 0.1, bias_correction=False, max_grad_norm=1.0)
adam.step()
"""


def test_an_optimizer_that_stays_apexs_loses_no_argument_but_the_one_that_is_left_out() -> None:
    kept = FUSED.replace(", max_grad_norm=1.0", "")
    (lost,) = of_torch(FUSED, kept)
    assert lost.startswith("refuse max_grad_norm=1.0 means something")
    clip = "for group in adam.param_groups:\n    torch.nn.utils.clip_grad_norm_(group['params'], {})\nadam.step()"
    assert of_torch(FUSED, kept.replace("adam.step()", clip.format("2.0"))) == [lost]  # another limit
    assert not of_torch(FUSED, kept.replace("adam.step()", clip.format("1.0")))
    uncorrected = kept.replace(", bias_correction=False", "").replace("adam.step()", clip.format("1.0"))
    assert [m.partition(" means")[0] for m in of_torch(FUSED, uncorrected)] == ["refuse bias_correction=False"]


FOREIGN = """
    from judges import Judge

    class Evaluation:
        def __init__(self):
            self.judge = Judge()

        def evaluate(self, model, loader):
            judge = Judge([model(x) for x in loader])
            judge.evaluate()
            self.judge.evaluate()
"""


@pytest.mark.parametrize("receiver", ["judge", "self.judge"])
def test_a_keyword_that_a_class_from_outside_was_never_known_to_take(receiver: str) -> None:
    after = FOREIGN.replace("model, loader):", "model, loader, use_amp=False):")
    after = after.replace(f"            {receiver}.evaluate()", f"            {receiver}.evaluate(use_amp=use_amp)")
    (said,) = (d.message for d in doubts(BEFORE + FOREIGN, BEFORE + after) if d.code == "AMP132")
    assert said.startswith(
        f"{receiver}.evaluate() is called here, and now with use_amp; it is a method of judges.Judge"
    )


@pytest.mark.parametrize(
    "made", ["Own()", "judges.build()", "Judge() if model else Own()", "model", "torch.nn.DataParallel(model)"]
)
def test_what_may_be_of_the_program_or_of_torch_may_take_a_keyword(made: str) -> None:
    own = """
    import judges
    from judges import Judge

    class Own:
        def evaluate(self, use_amp=False):
            pass

    def run(model, flag):
        judge = MADE
        judge.evaluate()
    """.replace("MADE", made)
    assert not changed(own, own.replace("judge.evaluate()", "judge.evaluate(use_amp=flag)"))
