"""Each forward in half precision before is under autocast after, and no other: AMP531."""

from __future__ import annotations

import re
import textwrap

import pytest

from tests.audit.helpers import doubts, doubts_of, sides, told

HEAD = """
import argparse
import torch
from apex import amp

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
parser.add_argument("--do_train", action="store_true")
args = parser.parse_args()
"""
AFTER_HEAD = HEAD.replace("from apex import amp\n", "")

TRAIN = """
def train(model, loader, optimizer):
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
"""
AFTER_TRAIN = """
def train(model, loader, optimizer, scaler):
    for x, y in loader:
        with torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""
EVALUATE = """
def evaluate(model, loader):
    with torch.no_grad():
        return [model(x).argmax(1) for x in loader]
"""
AFTER_EVALUATE = """
def evaluate(model, loader):
    with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):
        return [model(x).argmax(1) for x in loader]
"""
MAIN = """
model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if args.fp16:
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
train(model, loader, optimizer)
print(evaluate(model, loader))
"""
AFTER_MAIN = """
model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda", enabled=args.fp16)
train(model, loader, optimizer, scaler)
print(evaluate(model, loader))
"""


def test_a_right_migration_has_no_doubts() -> None:
    found = doubts(HEAD + TRAIN + EVALUATE + MAIN, AFTER_HEAD + AFTER_TRAIN + AFTER_EVALUATE + AFTER_MAIN)
    assert not [d for d in found if d.code.startswith("AMP53")]


def test_a_switch_that_is_assigned_itself() -> None:
    """It comes to nothing that could be told; asked without end, the check broke."""
    before = (HEAD + TRAIN + EVALUATE + MAIN).replace("if args.fp16:", 'level = level\nif level == "O1":')
    after = (AFTER_HEAD + AFTER_TRAIN + AFTER_EVALUATE + AFTER_MAIN).replace(
        "enabled=args.fp16", 'enabled=level == "O1"'
    )
    after = after.replace("model = torch.nn", "level = level\nmodel = torch.nn", 1)
    assert not told(doubts(before, after), "AMP531")


def test_an_evaluation_that_lost_its_precision() -> None:
    found = doubts(HEAD + TRAIN + EVALUATE + MAIN, AFTER_HEAD + AFTER_TRAIN + EVALUATE + AFTER_MAIN)
    (doubt,) = [d for d in found if d.code == "AMP531"]
    assert doubt.verdict == "review"
    assert "where fp16" in doubt.message
    assert "float32" in doubt.message
    assert (
        (HEAD + TRAIN + EVALUATE + MAIN)
        .lstrip("\n")
        .splitlines()[doubt.line - 1]
        .strip()
        .startswith("return [model(x)")
    )


def test_calls_that_are_written_alike_are_told_once_with_their_lines() -> None:
    several = EVALUATE + "        for x in loader:\n            first = model(x)\n            second = model(first)\n"
    several = several.replace("return [model(x).argmax(1) for x in loader]", "pass")
    before = HEAD + TRAIN + several + MAIN
    (doubt,) = [d for d in doubts(before, AFTER_HEAD + AFTER_TRAIN + several + AFTER_MAIN) if d.code == "AMP531"]
    lines = before.lstrip("\n").splitlines()
    assert lines[doubt.line - 1].strip() == "first = model(x)"
    assert doubt.message.endswith(f"(see line {doubt.line + 1}, too)")


def test_a_region_around_the_call_of_the_function_is_enough() -> None:
    main = AFTER_MAIN.replace(
        "print(evaluate(model, loader))",
        'with torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):\n    print(evaluate(model, loader))',
    )
    found = doubts(HEAD + TRAIN + EVALUATE + MAIN, AFTER_HEAD + AFTER_TRAIN + EVALUATE + main)
    assert not told(found, "AMP531")


def test_a_dropped_condition_gains_half() -> None:
    after = (AFTER_HEAD + AFTER_TRAIN + AFTER_EVALUATE + AFTER_MAIN).replace(", enabled=args.fp16", "")
    found = doubts(HEAD + TRAIN + EVALUATE + MAIN, after)
    messages = [d.message for d in found if d.code == "AMP531"]
    assert len(messages) == 2
    assert all("not fp16" in m for m in messages)


def test_evaluation_alone_was_float32() -> None:
    main = MAIN.replace("train(model, loader, optimizer)\n", "").replace(
        "if args.fp16:\n    model,", "if args.do_train:\n    if args.fp16:\n        model,"
    )
    main = main.replace('"O1")\n', '"O1")\n    train(model, loader, optimizer)\n')
    after = AFTER_MAIN.replace("scaler = ", "if args.do_train:\n    scaler = ").replace(
        "train(model, loader, optimizer, scaler)", "    train(model, loader, optimizer, scaler)"
    )
    found = doubts(HEAD + TRAIN + EVALUATE + main, AFTER_HEAD + AFTER_TRAIN + AFTER_EVALUATE + after)
    (doubt,) = [d for d in found if d.code == "AMP531"]
    assert "not do_train" in doubt.message
    assert doubt.verdict == "review"


def test_another_script_that_imports_the_evaluation() -> None:
    before = {
        "train.py": HEAD + TRAIN + EVALUATE + "if __name__ == '__main__':\n" + MAIN.replace("\n", "\n    ") + "\n",
        "test.py": "import torch\nfrom train import evaluate\n\nmodel = torch.nn.Linear(4, 2).cuda()\nevaluate(model, loader)\n",
    }
    after = AFTER_HEAD + AFTER_TRAIN + AFTER_EVALUATE.replace(", enabled=args.fp16", "")
    after += "if __name__ == '__main__':\n" + AFTER_MAIN.replace("\n", "\n    ") + "\n"
    found = doubts_of(before, {"train.py": after})
    assert any(d.code == "AMP531" and "runs under autocast now" in d.message for d in found)


def test_code_out_of_sight_that_is_given_the_model() -> None:
    head = HEAD + "from helpers import predict\n"
    main = MAIN.replace("print(evaluate(model, loader))", "print(predict(model, loader))")
    after_main = AFTER_MAIN.replace("print(evaluate(model, loader))", "print(predict(model, loader))")
    found = doubts(head + TRAIN + main, head.replace("from apex import amp\n", "") + AFTER_TRAIN + after_main)
    assert [d.verdict for d in found if "predict is given model" in d.message] == ["review"]


def test_an_evaluator_out_of_sight_that_is_made_with_the_model() -> None:
    head = HEAD + "from engines import create_supervised_evaluator, create_writer\n"
    use = "evaluator = create_supervised_evaluator(model)\ncreate_writer(model)"
    main, after_main = (m.replace("print(evaluate(model, loader))", use) for m in (MAIN, AFTER_MAIN))
    found = doubts(head + TRAIN + main, head.replace("from apex import amp\n", "") + AFTER_TRAIN + after_main)
    assert [d.message.split(" ")[0] for d in found if "is out of sight" in d.message] == ["create_supervised_evaluator"]


def test_a_model_made_before_the_set_up_and_run_before_it_was_float32() -> None:
    main = MAIN.replace("if args.fp16:", "evaluate(model, loader)\nif args.fp16:", 1)
    after = AFTER_MAIN.replace("scaler = ", "evaluate(model, loader)\nscaler = ")
    found = doubts(
        HEAD + TRAIN + EVALUATE + main.replace("print(evaluate(model, loader))\n", ""),
        AFTER_HEAD + AFTER_TRAIN + EVALUATE + after.replace("print(evaluate(model, loader))\n", ""),
    )
    assert not told(found, "AMP531")


def test_an_inner_region_of_the_programs_own_switches_ours_off() -> None:
    inner = AFTER_EVALUATE.replace(
        "        return [", "        with torch.autocast('cuda', enabled=False):\n            return ["
    )
    found = doubts(HEAD + TRAIN + EVALUATE + MAIN, AFTER_HEAD + AFTER_TRAIN + inner + AFTER_MAIN)
    assert [v for _, v in told(found, "AMP531")] == ["review"]


def test_a_method_of_the_model_that_runs_it() -> None:
    net = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.a(x)

    def infer(self, x):
        return self.a(x).argmax(1)

"""
    main = MAIN.replace("torch.nn.Linear(4, 2)", "Net()").replace("evaluate(model, loader)", "model.infer(x)")
    after = AFTER_MAIN.replace("torch.nn.Linear(4, 2)", "Net()").replace("evaluate(model, loader)", "model.infer(x)")
    found = doubts(HEAD + net + TRAIN + main, AFTER_HEAD + net + AFTER_TRAIN + after)
    assert any(d.code == "AMP531" and d.message.startswith("model.infer ran in half") for d in found)


def test_names_that_a_star_import_brought() -> None:
    before = {
        "evaluation.py": "import torch\n" + EVALUATE,
        "train.py": HEAD + "from evaluation import *\n" + TRAIN + MAIN,
    }
    after = AFTER_HEAD + "from evaluation import *\n" + AFTER_TRAIN + AFTER_MAIN
    (doubt,) = [d for d in doubts_of(before, {"train.py": after}) if d.code == "AMP531"]
    assert doubt.path == "evaluation.py"
    assert "called from train.py:" in doubt.message


SCRIPT, NATIVE = sides("""
    import torch
  - from apex import amp
    from nets import Net

  - def train(args, model, optimizer, batches):
  -     if args.fp16:
  -         model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
  + def train(args, model, optimizer, batches, scaler):
        for x in batches:
  -         loss = model(x).float().mean()
  -         if args.fp16:
  -             with amp.scale_loss(loss, optimizer) as scaled_loss:
  -                 scaled_loss.backward()
  -         else:
  -             loss.backward()
  -         optimizer.step()
  +         with torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):
  +             loss = model(x).float().mean()
  +         scaler.scale(loss).backward()
  +         scaler.step(optimizer)
  +         scaler.update()

    def evaluate(args, model, batches):
  -     return [model(x) for x in batches]
  +     with torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):
  +         return [model(x) for x in batches]

    def main(args, batches):
  +     scaler = torch.amp.GradScaler("cuda", enabled=args.fp16)
        model = Net.load(args.path)
        if args.do_train:
  -         train(args, model, torch.optim.SGD(model.parameters(), lr=0.1), batches)
  +         train(args, model, torch.optim.SGD(model.parameters(), lr=0.1), batches, scaler)
        if args.do_eval:
            model = Net.load(args.path)
            evaluate(args, model, batches)

    if __name__ == "__main__":
        main(parse(), load())
    """)
NETS = """
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)

        def forward(self, x):
            return self.layer(x)

        @classmethod
        def load(cls, path):
            return cls()
    """


def test_what_another_script_sets_up_does_not_run_in_this_one() -> None:
    other = SCRIPT.replace('    if __name__ == "__main__":\n        main(parse(), load())\n', "")
    found = doubts_of({"train.py": SCRIPT, "pretrain.py": other, "nets.py": NETS}, {"train.py": NATIVE})
    gained = [d for d in found if d.code == "AMP531" and d.path == "train.py"]
    assert [d.verdict for d in gained] == ["review"]
    assert "runs under autocast now" in gained[0].message


def test_the_call_that_leads_there_is_named() -> None:
    before = SCRIPT.replace(
        "            evaluate(args, model, batches)", "            evaluate(args, model, batches)  # this call"
    )
    found = doubts_of({"train.py": before, "nets.py": NETS}, {"train.py": NATIVE})
    line = next(i for i, text in enumerate(textwrap.dedent(before).strip().splitlines(), 1) if "# this call" in text)
    (gained,) = [d for d in found if d.code == "AMP531"]
    assert f"called from train.py:{line})" in gained.message
    starter = "from train import main\nfrom elsewhere import load, parse\n\nif __name__ == '__main__':\n    main(parse(), load())\n"
    library = before.replace('    if __name__ == "__main__":\n        main(parse(), load())\n', "")
    after = NATIVE.replace('    if __name__ == "__main__":\n        main(parse(), load())\n', "")
    found = doubts_of({"train.py": library, "nets.py": NETS, "start.py": starter}, {"train.py": after})
    (gained,) = [d for d in found if d.code == "AMP531"]
    assert f"called from train.py:{line} in a run of start.py)" in gained.message


def test_an_evaluation_out_of_sight_that_is_given_an_average_of_the_model() -> None:
    head = HEAD + "import evaluation\nfrom averages import Average\n"
    call = "print(evaluation.test(loader, model=Average(model).shadow))"
    kept = "average = Average(model); print(evaluation.test(loader, model=average.shadow))"
    for given, verdicts in ((kept, ["review"]), (call, [])):  # of what is made in place nothing is known
        main = MAIN.replace("print(evaluate(model, loader))", given)
        after_main = AFTER_MAIN.replace("print(evaluate(model, loader))", given)
        found = doubts(head + TRAIN + main, head.replace("from apex import amp\n", "") + AFTER_TRAIN + after_main)
        assert [d.verdict for d in found if "is given average.shadow" in d.message] == verdicts


ALONE = """
parser.add_argument("--resume", action="store_true")
parser.add_argument("--both", action="store_true")
parser.add_argument("--level", default="O1")
args = parser.parse_args()
if os.path.exists("out") and args.do_train and not args.resume:
    raise SystemExit("there already")
"""
SET_UP = """
if args.do_train and not args.both:
    if args.fp16:
        model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)
    train(model, loader, optimizer)
print(evaluate(model, loader))
"""


def test_the_condition_that_is_told_is_one_that_decides() -> None:
    """No flag of a check on the way, which says nothing by itself."""
    start = MAIN[: MAIN.index("if args.fp16")]
    enabled = 'enabled=args.fp16 and args.level != "O0"'
    before = "import os\n" + HEAD + ALONE + TRAIN + EVALUATE + start + SET_UP
    after = ("import os\n" + AFTER_HEAD + ALONE + AFTER_TRAIN + AFTER_EVALUATE + start).replace(
        "enabled=args.fp16", enabled
    ) + (
        f'scaler = torch.amp.GradScaler("cuda", {enabled})\n'
        "if args.do_train and not args.both:\n    train(model, loader, optimizer, scaler)\nprint(evaluate(model, loader))\n"
    )
    (doubt,) = [d for d in doubts(before, after) if d.code == "AMP531"]
    assert "autocast now where not do_train and fp16 and level is not 'O0'," in doubt.message


TENSORFLOW = """
import tensorflow as tf

class Wrapped(tf.keras.Model):
    def __init__(self, net):
        self.net = net
        self.net.eval()

    def call(self, x):
        return self.net(x)
"""


def test_networks_of_another_framework_are_none_of_apexs() -> None:
    use = "import wrapped, train\nserve(wrapped.Wrapped(train.model))\n"
    before = {"train.py": HEAD + TRAIN + EVALUATE + MAIN, "wrapped.py": TENSORFLOW, "use.py": use}
    after = {"train.py": AFTER_HEAD + AFTER_TRAIN + AFTER_EVALUATE + AFTER_MAIN}
    assert not [d for d in doubts_of(before, after) if d.path == "wrapped.py"]
    torchs = {
        **before,
        "wrapped.py": TENSORFLOW.replace("import tensorflow as tf", "import torch").replace("tf.keras.Model", ""),
    }
    assert [d.code for d in doubts_of(torchs, after) if d.path == "wrapped.py"] == ["AMP531"]


def test_an_option_is_no_network_that_was_left_out() -> None:
    before = (
        HEAD
        + TRAIN.replace("model(x)", "model(x, args.bert)")
        + MAIN.replace('"O1"', '"O2"').replace(
            "print(evaluate(model, loader))", "bert = torch.nn.Linear(4, 2)\nbert.eval()"
        )
    )
    after = (
        AFTER_HEAD
        + AFTER_TRAIN.replace("model(x)", "model(x, args.bert)")
        + AFTER_MAIN.replace("print(evaluate(model, loader))", "bert = torch.nn.Linear(4, 2)\nbert.eval()")
    )
    assert not [d for d in doubts(before, after) if "was not given to amp.initialize" in d.message]
    net = (t.replace("model(x, args.bert)", "model(x, bert)") for t in (before, after))
    assert [d for d in doubts(*net) if "was not given to amp.initialize" in d.message]


TRAINER = """
class Trainer:
    def __init__(self, model, optimizer, params):
        self.model, self.optimizer, self.params = model, optimizer, params
        if params.fp16:
            self.init_amp()

    def init_amp(self):
        self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level=self.params.level)

    def step(self, x, y):
        loss = torch.nn.functional.cross_entropy(self.model(x), y)
        with amp.scale_loss(loss, self.optimizer) as scaled_loss:
            scaled_loss.backward()
        self.optimizer.step()


trainer = Trainer(torch.nn.Linear(4, 2).cuda(), optimizer, args)
for x, y in loader:
    trainer.step(x, y)
"""
AFTER_TRAINER = """
class Trainer:
    def __init__(self, model, optimizer, params):
        self.model, self.optimizer, self.params = model, optimizer, params
        self.scaler = torch.amp.GradScaler("cuda", enabled=False)
        if params.fp16:
            self.init_amp()

    def init_amp(self):
        self.scaler = torch.amp.GradScaler("cuda", enabled=self.params.level != "O0")

    def step(self, x, y):
        with torch.autocast("cuda", dtype=torch.float16, enabled=self.scaler.is_enabled()):
            loss = torch.nn.functional.cross_entropy(self.model(x), y)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()


trainer = Trainer(torch.nn.Linear(4, 2).cuda(), optimizer, args)
for x, y in loader:
    trainer.step(x, y)
"""


def test_a_scaler_made_where_a_run_may_not_come_is_on_where_it_comes() -> None:
    assert not told(doubts(HEAD + TRAINER, AFTER_HEAD + AFTER_TRAINER), "AMP531")


def test_a_scaler_made_whenever_the_object_is_made_is_on_in_every_run() -> None:
    always = AFTER_TRAINER.replace(
        """        if params.fp16:
            self.init_amp()
""",
        "        self.init_amp()\n",
    )
    (doubt,) = [d for d in doubts(HEAD + TRAINER, AFTER_HEAD + always) if d.code == "AMP531"]
    assert "not fp16" in doubt.message
    assert "Apex had not been set up" in doubt.message


SETTER = """
class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer, self._mixed = model, optimizer, False

    @property
    def mixed(self):
        return self._mixed

    @mixed.setter
    def mixed(self, on):
        self._mixed = on
        if on:
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")

    def step(self, x, y):
        loss = torch.nn.functional.cross_entropy(self.model(x), y)
        if self.mixed:
            with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        self.optimizer.step()
"""
AFTER_SETTER = """
class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer, self._mixed = model, optimizer, False
        self.scaler = torch.amp.GradScaler("cuda", enabled=False)

    @property
    def mixed(self):
        return self._mixed

    @mixed.setter
    def mixed(self, on):
        self._mixed = on
        if on:
            self.scaler = torch.amp.GradScaler("cuda")

    def step(self, x, y):
        with torch.autocast("cuda", dtype=torch.float16, enabled=self.scaler.is_enabled()):
            loss = torch.nn.functional.cross_entropy(self.model(x), y)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
"""
USES = """

trainer = Trainer(torch.nn.Linear(4, 2).cuda(), optimizer)
{}for x, y in loader:
    print(trainer.mixed)
    trainer.step(x, y)
"""


def test_what_sets_a_property_runs_where_it_is_assigned_not_where_it_is_read() -> None:
    for before in ("", "trainer.mixed = args.fp16\n"):
        uses = USES.format(before)
        assert not told(doubts(HEAD + SETTER + uses, AFTER_HEAD + AFTER_SETTER + uses), "AMP531"), before


def test_a_property_that_is_set_is_a_way_to_the_set_up() -> None:
    uses = USES.format("trainer.mixed = args.fp16\n")
    plain = AFTER_SETTER.replace(
        'with torch.autocast("cuda", dtype=torch.float16, enabled=self.scaler.is_enabled()):', "if True:"
    )
    (doubt,) = [d for d in doubts(HEAD + SETTER + uses, AFTER_HEAD + plain + uses) if d.code == "AMP531"]
    assert "ran in half precision under Apex" in doubt.message


VERSIONS = """
from distutils.version import LooseVersion

model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = None
if args.fp16:
    if LooseVersion(torch.__version__) >= LooseVersion("1.6.0"):
        scaler = torch.cuda.amp.GradScaler()
    else:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
print(evaluate(model, loader))
"""


def test_a_set_up_for_an_older_torch_is_none() -> None:
    after = VERSIONS.replace("torch.cuda.amp.GradScaler()", 'torch.amp.GradScaler("cuda")').replace(
        '    else:\n        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n', ""
    )
    assert not told(doubts(HEAD + EVALUATE + VERSIONS, AFTER_HEAD + EVALUATE + after), "AMP531")
    newer = VERSIONS.replace(">=", "<").replace("torch.cuda.amp.GradScaler()", "None")
    after = newer.replace(
        '        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n', "        pass\n"
    )
    assert told(doubts(HEAD + EVALUATE + newer, AFTER_HEAD + EVALUATE + after), "AMP531")


FLAGGED = """
from packaging import version

_use_apex = False
if version.parse(torch.__version__) < version.parse("1.6"):
    _use_apex = True
else:
    from torch.cuda.amp import autocast

def main():
    model = torch.nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if args.fp16 and _use_apex:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    print(evaluate(model, loader))
"""


def test_a_set_up_under_a_flag_for_an_older_torch_is_none() -> None:
    call = '        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n'

    def found(program: str) -> list[str]:
        after = program.replace(call, "        pass\n").replace("torch.cuda.amp import", "torch.amp import")
        return [d.code for d in doubts(HEAD + EVALUATE + program, AFTER_HEAD + EVALUATE + after) if d.code == "AMP531"]

    assert not found(FLAGGED)
    assert found(FLAGGED.replace("< version", ">= version"))  # which newer ones meet
    assert found(FLAGGED.replace("_use_apex = False", "_use_apex = args.apex"))  # a flag of the user's
    assert found(FLAGGED.replace("def main():", "def main():\n    global _use_apex\n    _use_apex = True"))
    # What a flag is given may hang on what it was.
    assert found(FLAGGED.replace("def main():", "if _use_apex:\n    _use_apex = args.apex\n\ndef main():"))
    assert found(FLAGGED.replace("_use_apex = False", "_use_apex = args.on\nif not _use_apex:\n    _use_apex = True"))
    assert not found(FLAGGED.replace("_use_apex = False", "_use_apex = True\nif _use_apex:\n    _use_apex = False"))
    own = "from config import *\n\n_use_apex = _use_apex and args.apex\nprint(torch.__version__)\n\ndef main():"
    assert found(own + FLAGGED.partition("def main():")[2])


PARTS = """
from transformers import BertForMaskedLM

class Tagger(BertForMaskedLM):
    def __init__(self, config):
        super().__init__(config)
        self.codes = {layer}
        self.codes.train()

    def forward(self, x):
        return super().forward(self.codes(x))


class Reader:
    def __init__(self):
        self.codes = {layer}
        self.codes.train()

    def read(self, x):
        return self.codes(x)
"""


def test_a_layer_that_never_ran_in_half_loses_nothing() -> None:
    for layer, lost in (("torch.nn.Embedding(count, 4)", []), ("torch.nn.Linear(count, 4)", ["Reader.read"])):
        parts = PARTS.format(layer=layer)
        found = doubts(HEAD + TRAIN + parts + MAIN, AFTER_HEAD + AFTER_TRAIN + parts + AFTER_MAIN)
        said = [d.message.partition(": that this comes")[0] for d in found if "is not seen" in d.message]
        assert said == [f"self.codes in {name}" for name in lost], layer


def test_an_evaluation_that_a_star_import_brings_from_out_of_sight() -> None:
    head = HEAD + "from elsewhere.helpers import *\n"
    use = "print(timed_evaluation(model, loader), remember(model))"
    main, after_main = (m.replace("print(evaluate(model, loader))", use) for m in (MAIN, AFTER_MAIN))
    found = doubts(head + TRAIN + main, head.replace("from apex import amp\n", "") + AFTER_TRAIN + after_main)
    assert [d.message.split(" ")[0] for d in found if "is out of sight" in d.message] == ["timed_evaluation"]


KEEPER = """
class Keeper:
    def load_state_dict(self, state):
        self.best = state

    def __call__(self, score, model=None):
        self.best = max(self.best, score)
        torch.save(model.state_dict(), "best.pt")
        return self.best

"""


@pytest.mark.parametrize(
    ("made", "call", "told_of"),
    [
        ("Keeper()", "keeper(0.5, model)", False),
        ("Keeper()", "print(keeper(0.5))", False),
        ("found(args)", "keeper(0.5, model=model)", False),
        ("found(args)", "keeper(0.5)", False),
        ("found(args)", "print(keeper(0.5))", True),  # may be a network
        ("torch.nn.Linear(2, 2)", "print(keeper(x))", True),
    ],
)
def test_what_has_a_state_and_is_told_of_the_model_is_no_network(made: str, call: str, told_of: bool) -> None:
    use = f"keeper = {made}\nkeeper.load_state_dict(saved)\n{call}"
    head = HEAD + KEEPER
    main, after_main = (m.replace("print(evaluate(model, loader))", use) for m in (MAIN, AFTER_MAIN))
    found = doubts(head + TRAIN + main, head.replace("from apex import amp\n", "") + AFTER_TRAIN + after_main)
    assert bool([d for d in found if d.message.startswith("keeper ran in half")]) == told_of


@pytest.mark.parametrize(
    ("name", "kept", "told_of"),
    [
        ("scheduler", "load_state_dict(saved)", False),
        ("engine", "load_state_dict(saved)", False),
        ("loss_fn", "load_state_dict(saved)", False),
        ("loss_network", "eval()", True),
        ("reader", "load_state_dict(saved)", True),
    ],
)
def test_what_is_named_for_something_else_that_has_a_state_is_no_network(name: str, kept: str, told_of: bool) -> None:
    use = f"{name} = found(args)\n{name}.{kept}\nprint({name}(0.5))"
    main, after_main = (m.replace("print(evaluate(model, loader))", use) for m in (MAIN, AFTER_MAIN))
    found = doubts(HEAD + TRAIN + main, AFTER_HEAD + AFTER_TRAIN + after_main)
    assert bool([d for d in found if d.message.startswith(f"{name} ran in half")]) == told_of


RUNS = """
def run_text(model, batch):
    return model(batch)

def names(model, batch):
    return batch, str(model)

def evaluate(model, loader, run):
    with torch.no_grad():
        return [run(model, batch) for batch in loader]
"""


@pytest.mark.parametrize(
    ("functions", "lost"), [("run_text", True), ("names if args.do_train else run_text", True), ("names", False)]
)
@pytest.mark.parametrize("region", [False, True])
def test_a_function_chosen_elsewhere_that_is_given_the_model(functions: str, lost: bool, region: bool) -> None:
    use = f"chosen = {functions}\nprint(evaluate(model, loader, chosen))"
    main, after_main = (m.replace("print(evaluate(model, loader))", use) for m in (MAIN, AFTER_MAIN))
    wrapped = 'no_grad(), torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):'
    after = RUNS.replace("no_grad():", wrapped) if region else RUNS
    found = doubts(HEAD + RUNS + TRAIN + main, AFTER_HEAD + after + AFTER_TRAIN + after_main)
    told_of = [d for d in found if d.code == "AMP531" and "half precision under Apex" in d.message]
    assert bool(told_of) == (lost and not region)


LEGACY = """
import torch
from apex.fp16_utils import FP16_Optimizer

def build():
    return torch.nn.Linear(4, 2).cuda()

def main(loader):
    model = build()
    model.half()
    optimizer = FP16_Optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.backward(loss)
        optimizer.step()
    fresh = build()
    fresh.eval()
    for x in loader:
        print(fresh(x))
    for x in loader:
        print(fresh(x))

main(loader)
"""
AFTER_LEGACY = """
import torch

def build():
    return torch.nn.Linear(4, 2).cuda()

def main(loader):
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda", init_scale=1.0)
    for x, y in loader:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    fresh = build()
    fresh.eval()
    for x in loader:
        with torch.autocast("cuda", dtype=torch.float16):
            print(fresh(x))
    for x in loader:
        with torch.autocast("cuda", dtype=torch.float16):
            print(fresh(x))

main(loader)
"""


def test_a_network_that_was_not_made_half_with_the_other() -> None:
    (doubt,) = [d for d in doubts(LEGACY, AFTER_LEGACY) if d.message.startswith("fresh ")]
    assert (doubt.line, "amp.initialize" in doubt.message) == (18, False)


@pytest.mark.parametrize("module", ["ignite.engine", "engines"])
def test_an_evaluator_that_takes_the_precision(module: str) -> None:
    head = HEAD + f"from {module} import create_supervised_evaluator\n"
    use = "evaluator = create_supervised_evaluator(model)"
    main, after_main = (m.replace("print(evaluate(model, loader))", use) for m in (MAIN, AFTER_MAIN))
    found = doubts(head + TRAIN + main, head.replace("from apex import amp\n", "") + AFTER_TRAIN + after_main)
    (message,) = [d.message for d in found if "is out of sight" in d.message]
    assert ("amp_mode='amp'" in message) == (module == "ignite.engine")


def test_all_places_of_a_network_that_was_not_given_are_named() -> None:
    use = "other = torch.nn.Linear(4, 2)\nother.eval()\n"
    runs = "for x in loader:\n    REGIONprint(other(x))\n"
    main, after_main = (m.replace("print(evaluate(model, loader))", use + runs * 2) for m in (MAIN, AFTER_MAIN))
    region = 'with torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):\n        '
    before = (HEAD + TRAIN + main.replace('"O1"', '"O2"')).replace("REGION", "")
    found = doubts(before, (AFTER_HEAD + AFTER_TRAIN + after_main).replace("REGION", region))
    (message,) = [d.message for d in found if d.message.startswith("other was not given")]
    assert re.search(r"autocast here \(and in lines? \d+\)", message)


def test_an_optimizer_that_is_handed_to_what_computes_a_loss_is_no_network() -> None:
    before = """
    import torch
    from apex import amp

    class Loss:
        def __init__(self, value, optimizer):
            self.value, self.optimizer = value, optimizer

    def train(model, opt, batches, criterion, level, path):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model, opt = amp.initialize(model, opt, opt_level=level)
        for x, y in batches:
            out = Loss(criterion(model(x), y), optimizer)
            with amp.scale_loss(out.value, opt) as scaled:
                scaled.backward()
            opt.step()
        torch.save(optimizer.state_dict(), path)
    """
    after = before.replace(
        "model, opt = amp.initialize(model, opt, opt_level=level)", "scaler = torch.amp.GradScaler('cuda')"
    )
    after = after.replace(
        "            out = Loss(criterion(model(x), y), optimizer)\n",
        "            with torch.autocast('cuda', dtype=torch.float16):\n"
        "                out = Loss(criterion(model(x), y), optimizer)\n",
    )
    assert not [d for d in doubts(before, after) if "optimizer was not given" in d.message]


UNCAST = """
def evaluate(model, loader):
    with torch.no_grad(), amp.disable_casts():
        return [model(x).argmax(1) for x in loader]
"""
AFTER_UNCAST = """
def evaluate(model, loader):
    with torch.no_grad(), torch.autocast("cuda", enabled=ON):
        return [model(x).argmax(1) for x in loader]
"""


@pytest.mark.parametrize("on", ["False", "True"])
def test_where_casts_were_disabled_o1_ran_in_float32(on: str) -> None:
    before = HEAD + TRAIN + UNCAST + MAIN
    after = AFTER_HEAD + AFTER_TRAIN + AFTER_UNCAST.replace("ON", on) + AFTER_MAIN
    found = [(d.line, d.verdict) for d in doubts(before, after) if d.code == "AMP531"]
    line = after.lstrip("\n").split("\n").index("        return [model(x).argmax(1) for x in loader]") + 1
    assert found == ([(line, "refuse")] if on == "True" else [])


def test_casts_of_weights_are_not_disabled() -> None:
    """O2 made the weights half: they are that everywhere."""
    before = (HEAD + TRAIN + UNCAST + MAIN).replace("O1", "O2")
    after = AFTER_HEAD + AFTER_TRAIN + AFTER_UNCAST.replace("ON", "False") + AFTER_MAIN
    assert [d.verdict for d in doubts(before, after) if d.code == "AMP531"] == ["review"]


BESIDE = """
import torch
from torch.multiprocessing import Process
IMPORT

def evaluate(model, loader):
    with torch.no_grad():
        return [model(x).argmax(1) for x in loader]

def watch(model, loader):
    SET_UP
    REGION

def main(model, loader):
    print(evaluate(model, loader))
    START
    print(evaluate(model, loader))

main(torch.nn.Linear(4, 2), [])
"""


@pytest.mark.parametrize(
    ("start", "told_lines"),
    [
        ("Process(target=watch, args=(model, loader)).start()", []),
        ("Thread(target=watch, args=(model, loader)).start()", [7]),
        ("watch(model, loader)", [7]),
    ],
)
def test_what_another_process_sets_up_is_not_set_up_here(start: str, told_lines: list[int]) -> None:
    before = BESIDE.replace("START", start)
    after = before.replace("IMPORT", "").replace("SET_UP", "pass")
    region = "with torch.autocast('cuda', dtype=torch.float16):\n        evaluate(model, loader)"
    found = doubts(
        before.replace("IMPORT", "from apex import amp")
        .replace("SET_UP", 'model = amp.initialize(model, opt_level="O1")')
        .replace("REGION", "evaluate(model, loader)"),
        after.replace("REGION", region),
    )
    assert [d.line for d in found if d.code == "AMP531"] == told_lines


@pytest.mark.parametrize(
    ("runs", "told_of"),
    [
        ("model.rag.question_encoder(x)", True),
        ("model.rag.text_head(x, mask=None)", True),
        ("model.rag.question_encoder()", False),  # asks for it
        ("model.rag.tokenizer(x)", False),
        ("tokenizer.question_encoder(x)", False),
    ],
)
def test_a_part_of_a_model_out_of_sight_is_run_from_outside(runs: str, told_of: bool) -> None:
    """What networks call their parts is a forward, also deep in a model whose class is not seen."""
    made = "model = load().cuda()\ntokenizer = read()"
    before = (HEAD + TRAIN + EVALUATE + MAIN).replace("model(x).argmax(1)", f"{runs}[0]")
    after = (AFTER_HEAD + AFTER_TRAIN + EVALUATE + AFTER_MAIN).replace("model(x).argmax(1)", f"{runs}[0]")
    before, after = (t.replace("model = torch.nn.Linear(4, 2).cuda()", made) for t in (before, after))
    found = [d for d in doubts(before, after) if d.code == "AMP531" and d.message.startswith(runs.partition("(")[0])]
    assert bool(found) is told_of


CLOSED = """
def train(model, loader, optimizer):
    for x, y in loader:
        closure = None
        if args.fp16:
            loss = model(x).sum()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        TEST
            def closure():
                loss = model(x).sum()
                loss.backward()
                return loss
        optimizer.step(closure)
"""
AFTER_CLOSED = """
def train(model, loader, optimizer, scaler):
    for x, y in loader:
        closure = None
        if args.fp16:
            with torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):
                loss = model(x).sum()
            scaler.scale(loss).backward()
        TEST
            def closure():
                loss = model(x).sum()
                loss.backward()
                return loss
        scaler.step(optimizer, closure)
        scaler.update()
"""


@pytest.mark.parametrize(("test", "lost"), [("else:", 0), ("elif args.do_train:", 0), ("if args.do_train:", 1)])
def test_a_closure_runs_where_it_is_defined(test: str, lost: int) -> None:
    before, after = (text.replace("TEST", test) for text in (CLOSED, AFTER_CLOSED))
    main, after_main = (text.replace("print(evaluate(model, loader))\n", "") for text in (MAIN, AFTER_MAIN))
    found = doubts(HEAD + before + main, AFTER_HEAD + after + after_main)
    assert len([d for d in found if d.code == "AMP531"]) == lost


@pytest.mark.parametrize(("region", "expected"), [(True, 0), (False, 1)])
def test_a_network_whose_own_forward_opens_the_region(region: bool, expected: int) -> None:
    program = """
        import torch
        from torch import nn
        {head}
        class Part(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(2, 2)

            def forward(self, x):
                return self.layer(x)

        class Whole(nn.Module):
            def __init__(self):
                super().__init__()
                self.part = Part()
                self.opt = torch.optim.SGD(self.part.parameters(), 0.1)
                {setup}

            def forward(self, x):
                {run}

            def process(self, x):
                {loss}

        model = Whole().cuda()
        for x in data:
            model.process(x)
        print(model(x))
        """
    before = program.format(
        head="from apex import amp",
        setup='self.part, self.opt = amp.initialize(self.part, self.opt, opt_level="O1")',
        run="return self.part(x)",
        loss="with amp.scale_loss(self.forward(x).sum(), self.opt) as loss:\n                    loss.backward()",
    )
    opened = 'with torch.autocast("cuda", dtype=torch.float16):\n                    return self.part(x)'
    after = program.format(
        head="",
        setup='self.scaler = torch.amp.GradScaler("cuda")',
        run=opened if region else "return self.part(x)",
        loss="loss = self.forward(x).sum()\n                self.scaler.scale(loss).backward()",
    )
    found = [line for line, _ in told(doubts(before, after), "AMP531")]
    assert (len(found) > 0) is bool(expected)


def test_every_call_that_leads_there_is_named() -> None:
    """Each has a switch of its own to hand over."""
    script = (
        "import torch\nfrom train import evaluate\n\nmodel = torch.nn.Linear(4, 2).cuda()\nevaluate(model, loader)\n"
    )
    before = {
        "train.py": HEAD + TRAIN + EVALUATE + "if __name__ == '__main__':\n" + MAIN.replace("\n", "\n    ") + "\n",
        "first.py": script,
        "second.py": "import os\n" + script,
    }
    after = AFTER_HEAD + AFTER_TRAIN + AFTER_EVALUATE.replace(", enabled=args.fp16", "")
    after += "if __name__ == '__main__':\n" + AFTER_MAIN.replace("\n", "\n    ") + "\n"
    messages = [d.message for d in doubts_of(before, {"train.py": after}) if d.code == "AMP531"]
    (message,) = messages
    assert "now where not fp16" in message  # of its own program
    assert message.endswith("; so it is in every run called from first.py:5, from second.py:6")


def test_a_run_that_only_evaluates_what_it_makes_anew_was_float32() -> None:
    """O1 patched nothing there: no set-up was given that network, and none came before."""
    fresh = "if args.do_train:\n    train(model, loader, optimizer)\n"
    fresh += "other = torch.nn.Linear(4, 2).cuda()\nprint(evaluate(other, loader))\n"
    main = MAIN.replace("train(model, loader, optimizer)\nprint(evaluate(model, loader))\n", fresh)
    main = main.replace("if args.fp16:\n    model,", "if args.do_train and args.fp16:\n    model,")
    after = AFTER_MAIN.replace("train(model, loader, optimizer, scaler)\nprint(evaluate(model, loader))\n", fresh)
    after = after.replace("optimizer)\nother", "optimizer, scaler)\nother")
    found = doubts(HEAD + TRAIN + EVALUATE + main, AFTER_HEAD + AFTER_TRAIN + AFTER_EVALUATE + after)
    (doubt,) = [d for d in found if d.code == "AMP531"]
    assert "runs under autocast now" in doubt.message
    assert "not do_train" in doubt.message


@pytest.mark.parametrize("rest", ["", " + 0.1", " * model.weight.abs().mean()"])
def test_a_forward_that_was_taken_out_of_its_statement_in_front_of_the_region_is_told(rest: str) -> None:
    head = "import torch\n{}\n\ndef train(model, optimizer, criterion, loader):\n    {}\n    for x, y in loader:\n"
    setup = "model, optimizer = amp.initialize(model, optimizer, opt_level='O1')"
    before = head.format("from apex import amp", setup) + f"        loss = criterion(model(x), y){rest}\n"
    before += "        optimizer.zero_grad()\n        with amp.scale_loss(loss, optimizer) as scaled:\n"
    before += "            scaled.backward()\n        optimizer.step()\n"
    after = head.format("", "scaler = torch.amp.GradScaler('cuda')")
    region = "        with torch.autocast('cuda', dtype=torch.float16):\n"
    step = "        optimizer.zero_grad()\n        scaler.scale(loss).backward()\n"
    step += "        scaler.step(optimizer)\n        scaler.update()\n"
    loss = f"            loss = criterion(output, y){rest}\n"
    outside = f"{after}        output = model(x)\n{region}{loss}{step}"
    inside = f"{after}{region}            output = model(x)\n{loss}{step}"
    assert [d for d in doubts(before, outside) if d.code == "AMP531"]
    assert not [d for d in doubts(before, inside) if d.code == "AMP531"]
