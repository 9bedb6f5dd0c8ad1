"""What belongs to a unit that stays with Apex stays too."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, doubts_of, told

LARC = """
    import torch
    from apex import amp
    from apex.parallel.LARC import LARC

    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = LARC(optimizer, trust_coefficient=0.001)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    """


def test_a_wrapper_written_out_while_initialize_stays() -> None:
    after = """
        import torch
        from apex import amp

        class LARC:
            def __init__(self, optimizer, trust_coefficient):
                self.optimizer = optimizer

        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer = LARC(optimizer, trust_coefficient=0.001)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        """
    assert told(doubts(LARC, after), "AMP135") == [(7, "refuse")]


def test_a_wrapper_that_goes_with_initialize() -> None:
    after = """
        import torch

        class LARC:
            def __init__(self, optimizer, trust_coefficient):
                self.optimizer = optimizer

        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer = LARC(optimizer, trust_coefficient=0.001)
        scaler = torch.amp.GradScaler("cuda")
        """
    assert not told(doubts(LARC, after), "AMP135")


def test_an_optimizer_that_fp16_optimizer_still_wraps() -> None:
    before = """
        import apex
        import torch

        def build(params, name):
            if name == "fused":
                optimizer = apex.optimizers.FusedAdam(params, lr=0.1)
            else:
                optimizer = torch.optim.Adam(params, lr=0.1)
            return apex.optimizers.FP16_Optimizer(optimizer, dynamic_loss_scale=True)
        """
    after = before.replace(
        "apex.optimizers.FusedAdam(params, lr=0.1)", "torch.optim.AdamW(params, lr=0.1, weight_decay=0.0)"
    )
    assert told(doubts(before, after), "AMP135") == [(6, "refuse")]


HANDED_NORMS = """
    import torch
    from apex.{0} import FP16_Optimizer, FusedAdam

    model = torch.nn.Linear(2, 2).half()
    inner = FusedAdam(model.parameters(), lr=0.1{1})
    optimizer = FP16_Optimizer(inner, dynamic_loss_scale=True)
    """


@pytest.mark.parametrize("home", ["optimizers", "contrib.optimizers"])
def test_a_step_that_is_handed_no_norms_any_more(home: str) -> None:
    before = HANDED_NORMS.format(home, ", max_grad_norm=1.0")
    after = before.replace("inner", "optimizer").replace(
        "    optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)\n", ""
    )
    after = after.replace("FP16_Optimizer, ", "")
    assert told(doubts(before, after), "AMP135") == [(6, "refuse")]
    assert not told(doubts(before, before), "AMP135")
    limitless = after.replace(", max_grad_norm=1.0", "")
    assert not told(doubts(before, limitless), "AMP135")


def test_the_wrapper_of_fp16_utils_hands_on_no_norms() -> None:
    before = HANDED_NORMS.format("fp16_utils", ", max_grad_norm=1.0")
    assert not told(doubts(before, before.replace("FP16_Optimizer(inner, dynamic_loss_scale=True)", "inner")), "AMP135")


def test_a_distributed_model_that_apex_still_initializes() -> None:
    before = """
        import torch
        from apex import amp
        from apex.parallel import DistributedDataParallel as DDP

        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        model = DDP(model)
        """
    after = before.replace("from apex.parallel import", "from torch.nn.parallel import")
    assert told(doubts(before, after), "AMP135") == [(8, "refuse")]


STEPPED = """
    import torch
    from apex.fp16_utils import FP16_Optimizer
    from apex.parallel import DistributedDataParallel as DDP

    def main(loader, args):
        model = torch.nn.Linear(2, 2).half()
        other = torch.nn.Linear(2, 2)
        model = DDP(WRAPPED)
        named = list(model.named_parameters())
        groups = [{"params": [p for n, p in named if "bias" in n]}, {"params": [p for n, p in named if "bias" not in n]}]
        optimizer = FP16_Optimizer(torch.optim.Adam(groups), dynamic_loss_scale=True)
        for x in loader:
            optimizer.backward(model(x).sum())
            optimizer.step()
    """


def test_a_distributed_model_that_apexs_optimizer_still_steps() -> None:
    before = STEPPED.replace("WRAPPED", "model")
    after = before.replace("from apex.parallel import", "from torch.nn.parallel import")
    assert told(doubts(before, after), "AMP135") == [(8, "refuse")]
    gone = after.replace(
        "FP16_Optimizer(torch.optim.Adam(groups), dynamic_loss_scale=True)", "torch.optim.Adam(groups)"
    )
    assert not told(doubts(before, gone), "AMP135")


def test_a_distributed_model_that_apexs_optimizer_does_not_step() -> None:
    before = STEPPED.replace("model = DDP(WRAPPED)", "other = DDP(other)")
    after = before.replace("from apex.parallel import", "from torch.nn.parallel import")
    assert not told(doubts(before, after), "AMP135")


def test_a_registration_that_goes_while_apex_stays() -> None:
    before = """
        import torch
        from apex import amp

        amp.register_half_function(torch, "einsum")

        def build(model, optimizer):
            return amp.initialize(model, optimizer, opt_level="O1")
        """
    after = before.replace('        amp.register_half_function(torch, "einsum")\n', "")
    assert told(doubts(before, after), "AMP135") == [(4, "refuse")]


TYPES = """
import torch
from torch.nn.parallel import DistributedDataParallel
try:
    from apex.parallel import DistributedDataParallel as ApexDDP
    WRAPPED = (ApexDDP, DistributedDataParallel)
except ImportError:
    WRAPPED = (DistributedDataParallel,)

def unwrap(model):
    return model.module if isinstance(model, WRAPPED) else model
"""
TYPES_NOW = """
import torch
from torch.nn.parallel import DistributedDataParallel
WRAPPED = (DistributedDataParallel, DistributedDataParallel)

def unwrap(model):
    return model.module if isinstance(model, WRAPPED) else model
"""
MAKES = """
from apex.parallel import DistributedDataParallel
from wrapped import unwrap

def build(model):
    return DistributedDataParallel(model)
"""


def test_a_type_that_apexs_objects_are_told_by_stays_while_they_are_made() -> None:
    before = {"wrapped.py": TYPES, "build.py": MAKES}
    found = [d for d in doubts_of(before, {"wrapped.py": TYPES_NOW}) if d.code == "AMP135"]
    assert [(d.path, d.line, d.verdict) for d in found] == [("wrapped.py", 5, "refuse")]
    more = before | {"untouched.py": TYPES}  # where nothing changes they are told as they were
    assert [d for d in doubts_of(more, {"wrapped.py": TYPES_NOW}) if d.code == "AMP135"] == found
    changed = {"wrapped.py": TYPES + "\nVERSION = 2\n"}  # what changes around it leaves the type what it was
    assert not [d for d in doubts_of(before, changed) if d.code == "AMP135"]
    both = {"wrapped.py": TYPES_NOW, "build.py": MAKES.replace("apex.parallel", "torch.nn.parallel")}
    assert not [d for d in doubts_of(before, both) if d.code == "AMP135"]


INIT = """
    import torch
    from apex import amp

    def main(model, optimizer, loader):
        handle = amp.init(enabled=True)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x in loader:
            with amp.scale_loss(model(x), optimizer) as loss:
                loss.backward()
            optimizer.step()
    """


def test_a_handle_that_stays_where_no_loss_is_scaled_any_more() -> None:
    after = """
        import torch
        from apex import amp

        def main(model, optimizer, loader):
            handle = amp.init(enabled=True)
            scaler = torch.amp.GradScaler("cuda")
            for x in loader:
                with torch.autocast("cuda"):
                    loss = model(x)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
        """
    assert told(doubts(INIT, after), "AMP135") == [(5, "refuse")]


ALIAS = """
    from apex import amp

    model, optimizer = build()
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        loss = criterion(model(x), y)
        scaled = amp.scale_loss
        with {called}(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    """


def test_scale_loss_under_another_name_without_initialize() -> None:
    before = ALIAS.format(called="scaled")
    initialize = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
    assert initialize in before
    found = doubts(before, before.replace(initialize, "scaler = torch.amp.GradScaler()"))
    assert told(found, "AMP135") == [(4, "refuse")]
    assert "scale_loss is still used, at train.py:7" in next(d.message for d in found if d.code == "AMP135")


UNMADE = """
from apex import amp

class Adversarial:
    def step(self, loss, optimizer):
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()

def train(model, optimizer, loader):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x in loader:
        loss = model(x).mean()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
"""
SCALER = """
def train(model, optimizer, loader):
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""


def test_scale_loss_of_a_class_that_nobody_makes_holds_no_program_back() -> None:
    after = "import torch\n" + UNMADE.partition("def train")[0] + SCALER
    for used in ("", "trainer = Adversarial()\n"):
        refused = told(doubts(UNMADE + used, after + used), "AMP135")
        assert bool(refused) is bool(used)


@pytest.mark.parametrize("made", ["torch.optim.SGD(model.parameters(), lr=0.1)", "optimizer"])
def test_scale_loss_for_an_optimizer_that_no_initialize_was_given_belongs_to_none(made: str) -> None:
    before = f"""
        import torch
        from apex import amp

        model, other = build()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        third = {made}
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x in loader:
            with amp.scale_loss(model(x).mean(), third) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        """
    initialize = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
    after = before.replace(initialize, 'scaler = torch.amp.GradScaler("cuda")')
    assert bool(told(doubts(before, after), "AMP135")) is (made == "optimizer")


def test_scale_loss_where_another_initialize_stays() -> None:
    before = ALIAS.format(called="scaled") + ALIAS.format(called="amp.scale_loss")
    after = before.replace('amp.initialize(model, optimizer, opt_level="O1")', "model, optimizer", 1)
    assert "raises where nothing" not in str(doubts(before, after))


TWO_WRAPPERS = """
    import torch
    from apex import amp

    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    if args.fp16:
        from apex.parallel import DistributedDataParallel
        model = DistributedDataParallel(model)
    else:
        from torch.nn.parallel import DistributedDataParallel
        model = DistributedDataParallel(model, device_ids=[0])
    """


def test_only_apexs_wrapper_is_said_to_be_left_with_it() -> None:
    after = TWO_WRAPPERS.replace(
        "        from apex.parallel import DistributedDataParallel\n",
        "        from torch.nn.parallel import DistributedDataParallel\n",
    )
    assert told(doubts(TWO_WRAPPERS, after), "AMP135") == [(9, "refuse")]


def test_larc_by_the_name_of_its_package() -> None:
    before = LARC.replace("from apex.parallel.LARC import LARC", "from apex.parallel import LARC")
    after = before.replace("from apex.parallel import LARC", "from larc import LARC")
    assert told(doubts(before, after), "AMP135") == [(7, "refuse")]


NORMS = """
    import torch
    from apex import amp
    from apex.normalization import FusedLayerNorm

    model = FusedLayerNorm(8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize({given}, opt_level="O1")
    """
GIVEN = ["model, optimizer", "models=model, optimizers=optimizer"]


@pytest.mark.parametrize("given", GIVEN)
def test_a_model_made_anew_that_apex_still_initializes(given: str) -> None:
    before = NORMS.format(given=given)
    after = before.replace("= FusedLayerNorm(8)", "= torch.nn.LayerNorm(8)")
    assert told(doubts(before, after), "AMP135") == [(5, "refuse")]
    assert not told(doubts(before, before.replace("lr=0.1", "lr=0.2")), "AMP135")


@pytest.mark.parametrize("given", GIVEN)
def test_a_distributed_model_initialized_by_position_or_by_name(given: str) -> None:
    before = f"""
        import torch
        from apex import amp
        from apex.parallel import DistributedDataParallel as DDP

        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize({given}, opt_level="O1")
        model = DDP(model)
        """
    after = before.replace("from apex.parallel import", "from torch.nn.parallel import")
    assert told(doubts(before, after), "AMP135") == [(8, "refuse")]


def test_what_another_file_makes_for_apex_is_its_own() -> None:
    """Nothing of it changed; nor is a parameter made anew where its function changed."""
    made = "import torch\nfrom apex.normalization import FusedLayerNorm\n\ndef net():\n    return FusedLayerNorm(8)\n"
    made += "\ndef head():\n    return torch.nn.Linear(8, 2)\n"
    train = """
        from apex import amp
        from made import head, net

        def start(optimizer):
            print("start")
            return amp.initialize(net(), optimizer, opt_level="O1"), amp.initialize(head(), optimizer, opt_level="O1")
        """
    found = doubts_of({"made.py": made, "train.py": train}, {"train.py": train.replace('"start"', '"starts"')})
    assert not [d for d in found if d.code == "AMP135"]


def test_a_handle_that_stays_with_its_scale_loss_or_never_had_one() -> None:
    assert not told(doubts(INIT, INIT.replace('"O1"', '"O2"')), "AMP135")
    alone = "from apex import amp\n\nhandle = amp.init(enabled=True)\nprint(1)\n"
    train = INIT.replace("        handle = amp.init(enabled=True)\n", "")
    native = """
        import torch

        def main(model, optimizer, loader):
            scaler = torch.amp.GradScaler("cuda")
            for x in loader:
                with torch.autocast("cuda"):
                    loss = model(x)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
        """
    both = {"alone.py": alone, "train.py": train}
    found = doubts_of(both, {"alone.py": alone.replace("print(1)", "print(2)"), "train.py": native})
    assert not [d for d in found if d.code == "AMP135" and d.path == "alone.py"]


ASKED = """
    from apex.optimizers import FusedAdam

    def first(params):
        return FusedAdam(params)

    def second(params):
        return FusedAdam(params, lr=0.1)

    def fused(optimizer):
        return isinstance(optimizer, {asked})
    """


@pytest.mark.parametrize(
    ("asked", "lines"), [("FusedAdam", [8]), ("(FusedAdam, tuple)", [8]), ("(FusedAdam, torch.optim.AdamW)", [])]
)
def test_what_is_told_by_apexs_class_stays_of_it(asked: str, lines: list[int]) -> None:
    before = "\n    import torch" + ASKED.format(asked=asked)
    after = before.replace("FusedAdam(params, lr=0.1)", "torch.optim.AdamW(params, lr=0.1)")
    found = [d for d in doubts(before, after) if d.code == "AMP135" and "instance" in d.message]
    assert [d.line for d in found if "tells it by" in d.message] == lines


@pytest.mark.parametrize(
    ("name", "now"),
    [
        ("apex.optimizers.FusedAdam", "torch.optim.AdamW"),
        ("apex.optimizers.FusedSGD", "torch.optim.SGD"),
        ("apex.optimizers.FusedAdagrad", "torch.optim.Adagrad"),
        ("apex.optimizers.FusedLAMB", "own.Lamb"),
        ("apex.optimizers.FusedNovoGrad", "own.NovoGrad"),
        ("apex.normalization.FusedLayerNorm", "torch.nn.LayerNorm"),
        ("apex.normalization.FusedRMSNorm", "torch.nn.RMSNorm"),
        ("apex.normalization.MixedFusedLayerNorm", "torch.nn.LayerNorm"),
        ("apex.normalization.MixedFusedRMSNorm", "torch.nn.RMSNorm"),
        ("apex.parallel.SyncBatchNorm", "torch.nn.SyncBatchNorm"),
        ("apex.parallel.DistributedDataParallel", "torch.nn.parallel.DistributedDataParallel"),
        ("apex.parallel.LARC", "own.LARC"),
    ],
)
def test_every_class_of_apex_that_programs_tell_objects_by(name: str, now: str) -> None:
    before = f"import apex\nimport own\nimport torch\n\nkept = {name}(1)\nfound = isinstance(kept, {name})\n"
    found = doubts(before, before.replace(f"isinstance(kept, {name})", f"isinstance(kept, {now})"))
    assert told(found, "AMP135") == [(6, "refuse")]
    other = doubts(before, before.replace(f"= {name}(1)", f"= {now}(1)"))
    assert told(other, "AMP135") == [(5, "refuse")]


def test_what_is_told_by_larc_stays_larc() -> None:
    before = """
        from apex.parallel import LARC

        def build(optimizer):
            return LARC(optimizer)

        def wrapped(optimizer):
            return isinstance(optimizer, LARC)
        """
    after = before.replace("return LARC(optimizer)", "return Larc(optimizer)")
    assert told(doubts(before, after), "AMP135") == [(4, "refuse")]


SECOND = """
    import torch
    from apex import amp
    from apex.fp16_utils import FP16_Optimizer

    model, optimizer = amp.initialize(torch.nn.Linear(2, 2), build(), opt_level="O1")
    other, second = amp.initialize(torch.nn.Linear(2, 2), build(), opt_level="O1")
    third = FP16_Optimizer(build())


    def later(net, opt):
        return amp.initialize(net, opt, opt_level="O1")
    """


def test_a_set_up_that_went_while_another_of_the_run_patches_torch() -> None:
    kept = 'model, optimizer = amp.initialize(torch.nn.Linear(2, 2), build(), opt_level="O1")'
    gone = SECOND.replace(
        kept, 'model, optimizer = torch.nn.Linear(2, 2), build()\n    scaler = torch.amp.GradScaler("cuda")'
    )
    found = [d for d in doubts(SECOND, gone) if "in the same run" in d.message]
    assert [(d.line, d.construct, d.verdict) for d in found] == [(5, "amp.initialize", "refuse")]
    wrapped = SECOND.replace("FP16_Optimizer(build())", "build()")
    assert "in the same run" not in str(doubts(SECOND, wrapped))
    handle = SECOND.replace("third = FP16_Optimizer(build())", "third = amp.init()")
    assert "in the same run" not in str(doubts(handle, SECOND.replace("FP16_Optimizer(build())", "None")))
    both = gone.replace('other, second = amp.initialize(torch.nn.Linear(2, 2), build(), opt_level="O1")', "pass")
    assert "in the same run" not in str(doubts(SECOND, both))  # what nothing calls is in no run


TWO_METHODS = """
    import torch
    from apex import amp


    class Learner:
        def fit(self, data):
            model, optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")


    class Finder(Learner):
        def find(self, data):
            model, optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")


    class Other:
        def fit(self, data):
            model, optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")
    """


@pytest.mark.parametrize(("kept", "refused"), [(0, [12]), (1, [7]), (2, [])])
def test_a_method_that_was_migrated_while_another_one_of_the_object_patches_torch(
    kept: int, refused: list[int]
) -> None:
    line = 'model, optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")'
    first, *rest = TWO_METHODS.split(line)
    after = first + "".join((line if i == kept else "scaler = 1") + part for i, part in enumerate(rest))
    found = [d for d in doubts(TWO_METHODS, after) if "in the same run" in d.message]
    assert [(d.line, d.verdict) for d in found] == [(line, "refuse") for line in refused]


FACTORY = """
import torch


def build():
    return torch.nn.Linear(2, 2)
"""
SHARING = """
import torch
from apex import amp
from apex.parallel import DistributedDataParallel
from factory import build
IMPORTS

def main(loader):
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    model = DistributedDataParallel(model)
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main([])
"""
SHARED = """
import torch
from torch.nn.parallel import DistributedDataParallel
from factory import build
IMPORTS

def main(loader):
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    model = DistributedDataParallel(model)
    for x, y in loader:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


if __name__ == "__main__":
    main([])
"""


@pytest.mark.parametrize(
    ("imports", "beside", "together"),
    [("", "", False), ("import other", "", True), ("", "import other\nimport train\n", True)],
)
@pytest.mark.parametrize("shared", [True, False])
def test_scripts_of_two_processes_share_no_model_that_one_function_gives(
    imports: str, beside: str, together: bool, shared: bool
) -> None:
    """Nor do scripts of one process that each have it make another."""
    kept = "import torch\n\nnet = torch.nn.Linear(2, 2)\n\n\ndef build():\n    return net\n"
    files = {"factory.py": kept if shared else FACTORY, "other.py": SHARING.replace("IMPORTS", ""), "both.py": beside}
    found = doubts_of(
        {**files, "train.py": SHARING.replace("IMPORTS", imports)}, {"train.py": SHARED.replace("IMPORTS", imports)}
    )
    assert any(d.code == "AMP135" and "wraps is still handed" in d.message for d in found) == (together and shared)


SCRIPT = """
from apex import amp
from common import build, criterion, loader

def train(model, optimizer):
    for x, y in loader:
        loss = criterion(model(x), y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()

if __name__ == "__main__":
    model, optimizer = build()
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    train(model, optimizer)
"""
UNPREPARED = SCRIPT.partition("if __name__")[0] + 'if __name__ == "__main__":\n    print(len(loader))\n'


@pytest.mark.parametrize(
    ("other", "left"), [(UNPREPARED, None), ("import main\n" + UNPREPARED, "other.py:9")], ids=["another", "imports-it"]
)
def test_scale_loss_without_initialize_is_asked_of_each_process(other: str, left: str | None) -> None:
    """Another script's is no reason to leave a program with Apex."""
    main = SCRIPT.replace('    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n', "")
    main = main.replace("from apex import amp", "import torch\nscaler = torch.amp.GradScaler()")
    main = main.replace("amp.scale_loss(loss, optimizer)", "scaler.scaled(loss)")
    common = {"common.py": "from model import build, criterion, loader\n"}
    found = doubts_of({**common, "main.py": SCRIPT, "other.py": other}, {"main.py": main})
    told_of = [d.message.partition(", and")[0] for d in found if d.code == "AMP135"]
    assert told_of == ([f"left with Apex: scale_loss is still used, at {left}"] if left else [])


@pytest.mark.parametrize("given", ["[getattr(self, name) for name in self.names]", "self.steppers"])
def test_optimizers_out_of_sight_may_be_those_that_a_loss_is_scaled_for(given: str) -> None:
    before = f"""
        import torch
        from apex import amp

        class Trainer:
            def __init__(self, model, names, steppers):
                self.model, self.names, self.steppers = model, names, steppers
                self.one = torch.optim.SGD(model.parameters(), lr=0.1)

            def prepare(self):
                optimizers = {given}
                amp.initialize(self.model, optimizers, opt_level="O1")

            def step(self, x):
                with amp.scale_loss(self.model(x).mean(), self.one) as scaled_loss:
                    scaled_loss.backward()
                self.one.step()

        Trainer(model, names, steppers).prepare()
        """
    after = before.replace('amp.initialize(self.model, optimizers, opt_level="O1")', "pass")
    assert told(doubts(before, after), "AMP135") == [(11, "refuse")]


APART = """
    import torch
    from apex import amp
    from apex.parallel import DistributedDataParallel as DDP

    def make(size):
        return torch.nn.Linear(size, size)

    def train(args):
        model = make(2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")

    def evaluate(args):
        model = {made}
        if args.fp16:
            model = {wrapped}
        return model

    if args.evaluate:
        evaluate(args)
    else:
        train(args)
    """


@pytest.mark.parametrize("made", ["make(2)", "make(2) if args.rank else make(4)"])
def test_what_each_function_makes_by_a_call_of_its_own_is_not_the_other_s(made: str) -> None:
    before = APART.format(made=made, wrapped="DDP(model)")
    after = APART.format(made=made, wrapped="torch.nn.parallel.DistributedDataParallel(model)")
    assert not told(doubts(before, after), "AMP135")


EITHER = """
    import torch
    from apex import amp
    from apex.parallel import DistributedDataParallel as DDP
    from project import make

    def run(args):
        if args.alone:
            model = make(2)
            model = amp.initialize(model, opt_level="O1")
        {other}:
            model = {made}
            model = {wrapped}
        return model

    run(args)
    """


@pytest.mark.parametrize(("other", "made", "refused"), [("else", "make(2)", False), ("if args.many", "model", True)])
def test_what_is_wrapped_in_the_other_branch_is_not_what_apex_has(other: str, made: str, refused: bool) -> None:
    before = EITHER.format(other=other, made=made, wrapped="DDP(model)")
    after = EITHER.format(other=other, made=made, wrapped="torch.nn.parallel.DistributedDataParallel(model)")
    assert bool(told(doubts(before, after), "AMP135")) is refused
