"""Autocast regions: forward and loss in training and evaluation, nothing else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.rules.helpers import check_files, check_rewrite, check_untouched, rewrite, run_files
from tests.rules.programs import APEX_LOOP, INITIALIZE, MODEL, NATIVE_LOOP, SCALER, apex, native

BACKWARD = """
with amp.scale_loss(loss, optimizer) as scaled_loss:
    scaled_loss.backward()
optimizer.step()
"""
SCALED = """
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
"""
AUTOCAST = 'with torch.autocast("cuda", dtype=torch.float16):'


def check_region(before: str, after: str, model: str = MODEL) -> None:
    """Assert which statements of a loop body get a region; `with region:` stands for its header."""
    check_rewrite(
        apex(before + BACKWARD, model=model), native(after.replace("with region:", AUTOCAST) + SCALED, model=model)
    )


# -- training --------------------------------------------------------------------------------------------------------


def test_loading_and_moving_data_logging_and_zeroing_stay_outside() -> None:
    check_region(
        """
x = x.cuda(non_blocking=True)
y = y.cuda(non_blocking=True)
output = model(x)
loss = criterion(output, y)
meter.update(loss.item(), x.size(0))
optimizer.zero_grad()
""",
        """
x = x.cuda(non_blocking=True)
y = y.cuda(non_blocking=True)
with region:
    output = model(x)
    loss = criterion(output, y)
meter.update(loss.item(), x.size(0))
optimizer.zero_grad()
""",
    )


def test_backward_and_step_are_never_inside_a_region() -> None:
    after = rewrite(apex()).after
    assert after is not None
    for line in after.splitlines():
        if "backward()" in line or ".step(" in line or ".update(" in line:
            assert line.startswith("    scaler"), line


def test_a_loss_that_would_be_half_and_so_have_the_scale_as_its_gradient_is_computed_inside() -> None:
    check_region(
        "output = model(x)\nprint(output.shape)\nloss = (output - y).pow(2).mean()\n",
        "with region:\n    output = model(x)\n    print(output.shape)\n    loss = (output - y).pow(2).mean()\n",
    )


def test_a_loss_put_together_in_several_statements_is_inside_as_a_whole() -> None:
    loss = "output = model(x)\nloss = criterion(output, y)\nif aux:\n    loss = loss + criterion(output * 2, y)\n"
    check_region(loss, "with region:\n" + "".join(f"    {line}\n" for line in loss.splitlines()))


@pytest.mark.parametrize(
    "loss",
    [
        "loss = model(x, labels=y)[0]\n",
        "loss = model.training_step(x, y)\n",
        "loss, _ = model(x, y)\n",
        "outputs = model(**x)\nloss = outputs.loss\n",
        "outputs = [model(part) for part in x]\nloss = sum(criterion(o, y) for o in outputs)\n",
    ],
)
def test_the_forward_is_found_however_it_is_called(loss: str) -> None:
    check_region(loss, "with region:\n" + "".join(f"    {line}\n" for line in loss.splitlines()))


def test_a_forward_in_a_helper_is_covered() -> None:
    source = """
        import torch
        from apex import amp

        from project import build, criterion, loader


        def compute_loss(model, x, y):
            output = model(x)
            return criterion(output, y)


        model, optimizer = build()
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")

        for x, y in loader:
            loss = compute_loss(model, x, y)
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        """
    expected = """
        import torch

        from project import build, criterion, loader


        def compute_loss(model, x, y):
            with torch.autocast("cuda", dtype=torch.float16):
                output = model(x)
                return criterion(output, y)


        model, optimizer = build()
        scaler = torch.amp.GradScaler("cuda")

        for x, y in loader:
            loss = compute_loss(model, x, y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        """
    check_rewrite(source, expected)


def test_the_network_itself_is_not_touched_it_runs_in_the_callers_region() -> None:
    model = (
        "class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.linear = torch.nn.Linear(4, 2)\n\n    def forward(self, x):\n        return self.linear(x)\n\n\n"
        "model = Net()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    )
    check_rewrite(apex(model=model), native(model=model))


def test_data_parallel_passes_autocast_on_so_the_region_stays_around_its_call() -> None:
    wrapped = "\nmodel = torch.nn.DataParallel(model)"
    check_rewrite(apex(prepare=INITIALIZE + wrapped), native(prepare=SCALER + wrapped))


def test_activation_checkpointing_recomputes_in_the_same_region() -> None:
    imports = "from torch.utils.checkpoint import checkpoint"
    before = apex(
        "output = checkpoint(model, x)\nloss = criterion(output, y)\n" + BACKWARD,
        imports=f"{imports}\nfrom apex import amp",
    )
    after = native(
        f"{AUTOCAST}\n    output = checkpoint(model, x)\n    loss = criterion(output, y)\n" + SCALED, imports=imports
    )
    check_rewrite(before, after)


def test_a_forward_without_gradients_has_a_region_of_its_own_so_that_cached_weights_keep_theirs() -> None:
    check_region(
        "with torch.no_grad():\n    target = model(y)\noutput = model(x)\nloss = criterion(output, target)\n",
        'with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16):\n    target = model(y)\n'
        "with region:\n    output = model(x)\n    loss = criterion(output, target)\n",
    )


@pytest.mark.parametrize("prepare", ["[model, teacher], optimizer = amp.initialize([model, teacher], optimizer)"])
def test_every_model_given_to_initialize_is_covered(prepare: str) -> None:
    model = MODEL + "\nteacher = build()"
    before = "with torch.no_grad():\n    target = teacher(x)\nloss = criterion(model(x), target)\n"
    after = (
        'with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16):\n    target = teacher(x)\n'
        f"{AUTOCAST}\n    loss = criterion(model(x), target)\n"
    )
    check_rewrite(apex(before + BACKWARD, prepare, model=model), native(after + SCALED, model=model))


def test_a_trace_stays_outside_because_its_weight_cache_would_raise() -> None:
    tail = 'model.eval()\ntraced = torch.jit.trace(model, x)\ntraced.save("model.pt")\n'
    check_rewrite(apex(tail=tail), native(tail=tail))


# -- evaluation ------------------------------------------------------------------------------------------------------

EVALUATION = """
model.eval()
with torch.no_grad():
    for x, y in loader:
        output = model(x)
        validation_loss = criterion(output, y)
"""


def test_evaluation_ran_in_mixed_precision_and_still_does() -> None:
    after = EVALUATION.replace(
        "        output = model(x)\n        validation_loss = criterion(output, y)\n",
        f"        {AUTOCAST}\n            output = model(x)\n            validation_loss = criterion(output, y)\n",
    )
    check_rewrite(apex(tail=EVALUATION), native(tail=after))


EVALUATE = """
def evaluate(model, x, y):
    with torch.no_grad():
        return criterion(model(x), y).item()


evaluate(model, x, y)
"""


def test_a_no_grad_line_is_joined_not_nested() -> None:
    joined = EVALUATE.replace("torch.no_grad():", 'torch.no_grad(), torch.autocast("cuda", dtype=torch.float16):')
    check_rewrite(apex(tail=EVALUATE), native(tail=joined))


CHOSEN = "torch.no_grad() if testing else contextlib.nullcontext()"
ONE_RUN = """
def run(model, x, y, training, testing, count=0):
    with CHOSEN:
        output = model(x)
        loss = criterion(output, y)
    return loss.item()


run(model, x, y, False, True)
"""


@pytest.mark.parametrize("chosen", [CHOSEN, "contextlib.nullcontext() if training else torch.no_grad()"])
def test_so_is_one_that_chooses_whether_there_are_gradients(chosen: str) -> None:
    tail = ONE_RUN.replace("CHOSEN", chosen)
    joined = tail.replace(f"{chosen}:", f'{chosen}, torch.autocast("cuda", dtype=torch.float16):')
    check_rewrite(apex(tail=tail), native(tail=joined))


def test_a_region_within_one_takes_in_no_more_than_it_has_to() -> None:
    counted = "found = output.argmax(1)\n        seen = len(x)\n        count = count + seen\n"
    hot = (
        "output = model(x)\n        more = output + 1\n        best = more.max()\n        loss = criterion(output, y)\n"
    )
    tail = ONE_RUN.replace("CHOSEN", CHOSEN)
    tail = tail.replace("output = model(x)\n        loss = criterion(output, y)\n", f"{hot}        {counted}")
    region = f"{AUTOCAST}\n    {hot}".replace("\n        ", "\n            ").replace(
        "\n    output", "\n            output"
    )
    check_rewrite(apex(tail=tail), native(tail=tail.replace(hot, region)))


def test_evaluation_in_fp32_when_asked_for_leaves_it_as_it_is() -> None:
    check_rewrite(apex(tail=EVALUATE), native(tail=EVALUATE), eval="fp32")


def test_a_decorated_prediction_gets_a_region_inside() -> None:
    tail = "@torch.no_grad()\ndef predict(model, x):\n    return model(x).argmax()\n\n\npredict(model, x)\n"
    after = tail.replace("    return", f"    {AUTOCAST}\n        return")
    check_rewrite(apex(tail=tail), native(tail=after))


def test_generation_is_a_forward() -> None:
    tail = "with torch.no_grad():\n    print(model.generate(x))\n"
    after = tail.replace("torch.no_grad():", 'torch.no_grad(), torch.autocast("cuda", dtype=torch.float16):')
    check_rewrite(apex(tail=tail), native(tail=after))


@pytest.mark.parametrize(
    "line",
    [
        "model.train()",
        "model.eval()",
        "model = model.cuda()",
        'torch.save(model.state_dict(), "last.pt")',
        "count = sum(p.numel() for p in model.parameters())",
        "model.load_state_dict(state)",
        "print(model)",
    ],
)
def test_what_computes_nothing_with_the_model_gets_no_region(line: str) -> None:
    after = rewrite(apex(tail=line)).after
    assert after is not None
    assert after.endswith(f"    scaler.update()\n{line}\n")


def test_the_switch_is_reached_from_every_region() -> None:
    source = """
        import torch
        from apex import amp

        from project import build, criterion, loader


        class Trainer:
            def __init__(self, args):
                self.model, self.optimizer = build()
                if args.fp16:
                    self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level=args.level)
                self.fp16 = args.fp16

            def train(self):
                for x, y in loader:
                    loss = criterion(self.model(x), y)
                    if self.fp16:
                        with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                            scaled_loss.backward()
                    else:
                        loss.backward()
                    self.optimizer.step()

            def evaluate(self):
                with torch.no_grad():
                    for x, y in loader:
                        print(criterion(self.model(x), y))
        """
    after = rewrite(source).after
    assert after is not None
    assert after.count('torch.autocast("cuda", dtype=torch.float16, enabled=self.scaler.is_enabled())') == 2


def test_regions_are_not_added_to_a_native_program() -> None:
    check_untouched(native(NATIVE_LOOP, tail=EVALUATION) + "# no apex\n")


def test_a_loss_with_no_forward_in_sight_still_gets_its_region_or_is_reported() -> None:
    source = """
        import torch
        from apex import amp


        def fit(model, optimizer, engine, batches):
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            for batch in batches:
                loss = engine.compute(batch)
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
        """
    result = rewrite(source)
    assert result.after is not None
    assert f"        {AUTOCAST}\n            loss = engine.compute(batch)\n" in result.after


def test_the_training_of_another_loop_without_apex_is_left_alone() -> None:
    tail = "for x, y in loader:\n    loss = other_loss(other(x), y)\n    loss.backward()\n    other_optimizer.step()\n"
    imports = "from project import other, other_loss, other_optimizer"
    check_rewrite(
        apex(APEX_LOOP, imports=f"from apex import amp\n{imports}", tail=tail), native(imports=imports, tail=tail)
    )


@pytest.mark.parametrize("flag", ["", ", enabled=fast and level"])
def test_a_forward_before_initialize_ran_without_apex_and_is_left_alone(flag: str) -> None:
    model = MODEL + "\nprint(model(torch.zeros(1, 4)).shape)"
    imports = "from apex import amp\nfrom options import fast, level"
    after = rewrite(apex(prepare=INITIALIZE.replace(")", f"{flag})"), model=model, imports=imports)).after
    assert after is not None
    assert "\nprint(model(torch.zeros(1, 4)).shape)\n" in after


def test_evaluation_in_fp32_also_where_it_shares_the_scope_of_training() -> None:
    check_rewrite(apex(tail=EVALUATION), native(tail=EVALUATION), eval="fp32")


def test_a_forward_without_gradients_that_the_training_step_needs_is_no_evaluation() -> None:
    loop = APEX_LOOP.replace("loss = ", "with torch.no_grad():\n    target = model(x)\nloss = ", 1)
    after = rewrite(apex(loop), eval="fp32").after
    assert after is not None
    assert "with torch.no_grad(), torch.autocast(" in after


ENGINE = """
    from apex import amp


    class Engine:
        def __init__(self, model, optimizer, process):
            self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")
            self.process = process

        def backward(self, loss):
            with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()

        def step(self):
            self.optimizer.step()
    """


def test_a_unit_of_which_nothing_would_run_under_autocast_is_refused() -> None:
    """A loss scaler would be all that is left of it: the program would train in float32."""
    result = rewrite(ENGINE)
    assert result.after is None
    (finding,) = [f for f in result.findings if f.code == "AMP502"]
    assert finding.status == "manual"
    assert finding.message.startswith("no forward of the model is in sight")
    assert not [f for f in rewrite(apex()).findings if f.code == "AMP502"]


def test_what_is_given_the_model_may_run_it() -> None:
    """A forward that is not recognised is not said to be out of sight."""
    forward = """
        def forward(self, batch):
            return self.process(self.model, batch)
    """
    result = rewrite(ENGINE + forward)
    (finding,) = [f for f in result.findings if f.code == "AMP502"]
    assert result.after is None
    assert "out of sight" not in finding.message
    assert "not in sight" not in finding.message
    assert "train.py:17 (self.process)" in finding.message


def test_inference_of_which_nothing_would_run_under_autocast_is_refused_too() -> None:
    result = rewrite('from apex import amp\nmodel = amp.initialize(make(), opt_level="O1")\nserve(model)\n')
    assert result.after is None
    assert [(f.code, f.status) for f in result.findings] == [("AMP502", "manual")]
    assert "train.py:3 (serve)" in result.findings[0].message


def test_float32_evaluation_asked_for_is_no_refusal() -> None:
    source = """
    from apex import amp
    model = amp.initialize(make(), opt_level="O1")
    with torch.no_grad():
        scores = model(x)
    """
    result = rewrite(source, eval="fp32")
    assert result.after is not None
    (taken,) = [f for f in result.findings if f.code == "AMP110"]
    assert taken.message == "taken out"


def test_a_region_of_the_programs_own_is_in_sight() -> None:
    loop = """
    with torch.autocast("cuda"):
        loss = criterion(model(x), y)
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
    """
    result = rewrite(apex(loop))
    assert result.after is not None
    assert result.after.count("torch.autocast") == 1
    assert not [f for f in result.findings if f.code == "AMP502"]


def regions(source: str) -> list[list[str]]:
    """The statements of each autocast region, by first line."""
    result = rewrite(source)
    assert result.after is not None, result.findings
    assert not [f for f in result.findings if f.status == "manual"]
    return [
        [ast.unparse(s).splitlines()[0] for s in node.body]
        for node in ast.walk(ast.parse(result.after))
        if isinstance(node, ast.With) and "autocast" in ast.unparse(node.items[-1])
    ]


def test_wrapping_the_model_is_no_forward() -> None:
    found = regions(
        """
        import torch
        from apex import amp

        def main(args, net, optimizer, loader):
            net, optimizer = amp.initialize(net, optimizer, opt_level="O1")
            if args.distributed:
                net = torch.nn.parallel.DistributedDataParallel(net)
            for x in loader:
                loss = net(x).sum()
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
        """
    )
    assert found == [["loss = net(x).sum()"]]


def test_a_metric_after_the_backward_is_left_outside() -> None:
    found = regions(
        """
        import torch
        from apex import amp
        from metrics import alignment_score

        def train(model, criterion, optimizer, loader):
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            for x, y in loader:
                out, alignments = model(x)
                losses = criterion(out, y)
                with amp.scale_loss(losses["total"], optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
                score = 1 - alignment_score(alignments)
                losses["score"] = score
        """
    )
    assert found == [["out, alignments = model(x)", "losses = criterion(out, y)"]]


def test_models_that_a_name_decides_on_are_told_from_what_prepares_their_batch() -> None:
    found = regions(
        """
        import torch
        from apex import amp
        from batches import pad

        class Trainer:
            def __init__(self, nets, optimizers):
                self.names = ["encoder", "decoder"]
                for name, net in zip(self.names, nets):
                    setattr(self, name, net)
                nets, self.optimizers = amp.initialize(nets, optimizers, opt_level="O1")

            def batch(self):
                return torch.randn(2, 2), torch.ones(2)

            def step(self, name):
                model = getattr(self, name)
                x, y = self.batch()
                x = pad(x)
                h = model("forward", x)
                _, loss = model("predict", h, y)
                self.optimize(loss)

            def chain(self):
                x, y = self.batch()
                h = self.encoder(x)
                loss = self.decoder(h, y)
                self.optimize(loss)

            def optimize(self, loss):
                with amp.scale_loss(loss, self.optimizers) as scaled_loss:
                    scaled_loss.backward()
                for optimizer in self.optimizers:
                    optimizer.step()
        """
    )
    assert found == [
        ["h = model('forward', x)", "_, loss = model('predict', h, y)"],
        ["h = self.encoder(x)", "loss = self.decoder(h, y)"],
    ]


def test_code_out_of_sight_that_is_handed_the_model_runs_it() -> None:
    found = regions(
        """
        import torch
        from apex import amp

        class Controller(Base):
            def setup(self):
                self.context.model, self.context.optimizer = amp.initialize(
                    self.context.model, self.context.optimizer, opt_level="O1"
                )

            def run(self, loader):
                for batch in loader:
                    batch = self._to_device(batch)
                    batch = self.augment(batch)
                    metrics = self.trial.train_batch(batch, model=self.context.model)
                    loss = metrics["loss"]
                    with amp.scale_loss(loss, self.context.optimizer) as scaled_loss:
                        scaled_loss.backward()
                    self.context.optimizer.step()
        """
    )
    assert found == [["metrics = self.trial.train_batch(batch, model=self.context.model)", "loss = metrics['loss']"]]


def test_a_branch_that_adds_to_the_loss_goes_into_the_region_above_it() -> None:
    found = regions(
        """
        import torch
        from apex import amp

        def update(model, criterion, distill, optimizer, args, batch):
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            logits = model(batch["x"])
            loss = criterion(logits, batch["y"])
            if args.distill and "soft" in batch:
                soft = batch["soft"]
                soft = soft.cuda() if args.cuda else soft
                temperature = args.temperature
                soft_loss = distill(logits / temperature, soft)
                loss = loss + soft_loss
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        """
    )
    assert [len(region) for region in found] == [3]


SCORED = """score = criterion(logits, batch["z"])
print(score)
log(score)
note(score)"""
LOOPED = """for name in names:
    loss = loss + criterion(logits, batch[name])
    log(name)
    note(name)
    print(name)"""
LEFT = """log(loss)
note(loss)
if loss > 9:
    return
loss = loss + criterion(logits, batch["z"])"""


@pytest.mark.parametrize("branch", [SCORED, LOOPED, LEFT])
def test_a_branch_with_a_life_of_its_own_does_not(branch: str) -> None:
    found = regions(
        f"""
        import torch
        from apex import amp
        from project import names, log, note

        def update(model, criterion, optimizer, args, batch):
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            logits = model(batch["x"])
            loss = criterion(logits, batch["y"])
            if args.more:
                {branch.replace(chr(10), chr(10) + " " * 16)}
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        """
    )
    assert len(found) == 2
    assert found[0] == ["logits = model(batch['x'])", "loss = criterion(logits, batch['y'])"]


def test_a_loss_that_an_evaluation_hands_straight_on_is_computed_under_autocast() -> None:
    loop = "output = model(x)\n        losses.append(criterion(output, y).item())\n"
    tail = f"losses = []\nwith torch.no_grad():\n    for x, y in loader:\n        {loop}"
    after = rewrite(apex(tail=tail)).after
    assert after is not None
    assert "            output = model(x)\n            losses.append(criterion(output, y).item())\n" in after


def test_a_criterion_held_in_a_variable_is_not_taken_for_the_model() -> None:
    found = regions(
        """
        import torch
        from apex import amp

        class Trainer:
            def __init__(self, engine, optimizer, criterion):
                self.engine = engine
                self.criterion = criterion
                _, self.optimizer = amp.initialize(engine.net, optimizer, opt_level="O1")

            def step(self, x, y):
                out = self.engine.run(x)
                loss = self.criterion(out, y)
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
                self.optimizer.step()
        """
    )
    assert found == [["out = self.engine.run(x)", "loss = self.criterion(out, y)"]]


@pytest.mark.parametrize(
    ("header", "migrated"),
    [
        ("torch.cuda.amp.autocast()", 'torch.autocast("cuda")'),
        ('torch.autocast("cuda", dtype=torch.bfloat16)', 'torch.autocast("cuda", dtype=torch.bfloat16)'),
    ],
)
def test_a_forward_under_the_programs_own_autocast_gets_no_second_region(header: str, migrated: str) -> None:
    """A timing loop that always ran in mixed precision does so whatever the opt level."""
    source = f"""
        import torch
        from apex import amp

        from project import args, build, loader

        model, optimizer = build()
        if args.level != "O0":
            model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)
        for x in loader:
            loss = model(x)
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        with {header}:
            while True:
                model(x)
        """
    after = rewrite(source).after
    assert after is not None
    assert after.count("autocast(") == 2
    assert after.endswith(f"with {migrated}:\n    while True:\n        model(x)\n")


def test_autocast_under_a_condition_of_its_own_is_not_enough() -> None:
    source = """
        import torch
        from apex import amp

        from project import args, build, loader

        model, optimizer = build()
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x in loader:
            with torch.autocast("cuda", enabled=args.native):
                loss = model(x)
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        """
    after = rewrite(source).after
    assert after is not None
    assert 'torch.autocast("cuda", enabled=True):\n' in after


def test_a_switch_that_a_condition_around_asks_already_is_not_asked_again() -> None:
    source = """
        from apex import amp
        from project import args, loader, load, model, store


        def main():
            if args.cache is None and args.half:
                network = amp.initialize(model, opt_level="O1")
                store(loader)
                for x in loader:
                    out = network(x)
                    store(out.sum().item())
            store(loader)
            load()
            for x in loader:
                out = network(x)
                store(out.sum().item())
        """
    after = rewrite(source).after
    assert after is not None
    assert 'with torch.autocast("cuda", dtype=torch.float16):\n                out = network(x)' in after
    assert "enabled=bool(args.cache is None and args.half)):\n            out = network(x)" in after


def test_a_switch_that_is_set_anew_below_the_set_up_changes_nothing() -> None:
    source = """
        from apex import amp
        from project import choose, loader, model, store


        def main(half):
            if half:
                network = amp.initialize(model, opt_level="O1")
                half = choose()
                for x in loader:
                    out = network(x)
                    store(out.sum().item())
        """
    after = rewrite(source).after
    assert after is not None
    assert 'with torch.autocast("cuda", dtype=torch.float16):' in after


def test_a_model_handed_to_a_method_of_its_class_that_runs_it_is_a_forward() -> None:
    source = """
        import torch
        from apex import amp
        from project import loader, store


        class Encoder(torch.nn.Module):
            @staticmethod
            def represent(part, x):
                return part(x)

            @staticmethod
            def describe(part, x):
                return repr(part), x

            @classmethod
            def embed(cls, part, x):
                return cls.represent(part, x), part(x)


        model = Encoder()
        model = amp.initialize(model, opt_level="O1")
        for x in loader:
            store(Encoder.describe(model, x))
        for x in loader:
            out = Encoder.represent(model, x)
            store(out)
        for x in loader:
            seen = Encoder.embed(model, x)
            store(seen)
        """
    after = rewrite(source).after
    assert after is not None
    assert "dtype=torch.float16):\n        out = Encoder.represent(model, x)" in after
    assert "dtype=torch.float16):\n        seen = Encoder.embed(model, x)" in after
    assert "\n    store(Encoder.describe(model, x))" in after


CARRIED_SWITCH = """
    import json

    import torch
    from apex import amp


    class Trainer:
        def __init__(self):
            self.model = torch.nn.Linear(4, 1)
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            self.kinds = []

        def fit(self, data):
            for x in data:
                self.optimizer.zero_grad()
                output = self.model(x)
                loss = output.sum()
                self.kinds.append(str(output.dtype))
                with amp.scale_loss(loss, self.optimizer) as scaled:
                    scaled.backward()
                self.optimizer.step()


    def run(level):
        trainer = Trainer()
        fp16 = level.startswith("O1")
        trainer.model, trainer.optimizer = amp.initialize(
            trainer.model, trainer.optimizer, opt_level="O1", enabled=fp16
        )
        trainer.fit([torch.ones(2, 4)])
        return trainer.kinds


    if __name__ == "__main__":
        print(json.dumps({"on": run("O1"), "off": run("O0")}))
"""


def test_the_switch_of_an_object_is_kept_on_it(tmp_path: Path) -> None:
    """Without a scaler to ask, the methods read the switch from `self`: it is set on the object, not in a local."""
    texts = check_files({"train.py": CARRIED_SWITCH}, device="cpu", dtype="bfloat16")
    assert run_files(tmp_path, texts, "train.py") == {"on": ["torch.bfloat16"], "off": ["torch.float32"]}


def test_a_loop_over_batches_is_no_region_whatever_its_header_calls() -> None:
    tail = """
    scores = None
    events = [record() for _ in range(len(loader))]
    for i, (x, y) in progress(enumerate(batches(loader)), describe("evaluating")):
        x = x.to(device)
        with torch.no_grad():
            events[i].record()
            output = model(x)
            events[i].record()
            if args.score:
                loss = criterion(output, y).mean().item()
        scores = output.cpu().numpy()
    """
    after = rewrite(apex(tail=tail)).after
    assert after is not None
    assert "\nfor i, (x, y) in progress(" in after
    assert "        output = model(x)" in after.replace("    output", "output").replace(
        "output = ", "        output = "
    )


def test_a_model_out_of_one_variable_for_model_and_optimizer_is_run_in_a_region() -> None:
    source = """
        import torch
        from apex import amp
        from project import build, loader, store


        def prepare(model, training):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1) if training else None
            both = amp.initialize(model, optimizers=optimizer, opt_level="O1")
            model, optimizer = both if training else (both, None)
            return model, optimizer


        def main(training):
            model, optimizer = prepare(build(), training)
            for x, y in loader:
                loss = (model(x) - y).pow(2).mean()
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
            for x, y in loader:
                with torch.no_grad():
                    store(y)
                    output = model(x)
                    store(output.sum().item())
        """
    after = rewrite(source).after
    assert after is not None
    assert 'with torch.autocast("cuda", dtype=torch.float16):\n                output = model(x)' in after


def test_a_branch_that_picks_elements_of_the_output_is_taken_into_the_region() -> None:
    body = (
        "output = model(x)\nif mask is not None:\n    mask = mask.type(torch.bool)\n    mask = mask.to(y.device)\n"
        "    output = output.masked_select(mask)\n    y = y.masked_select(mask)\nloss = criterion(output, y)\n"
    )
    region = "".join(f"    {line}\n" for line in body.splitlines())
    scaled = "with amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()\noptimizer.step()\n"
    check_rewrite(
        apex(body + scaled, imports="from apex import amp\nfrom project import mask"),
        native(
            f'with torch.autocast("cuda", dtype=torch.float16):\n{region}'
            "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()\n",
            imports="from project import mask",
        ),
    )


TELLING = """
import torch
from apex import amp

class Tagger(torch.nn.Module):
    def __init__(self, metric=None):
        super().__init__()
        self.body = torch.nn.Linear(4, 2)
        self.metric = metric

    def forward(self, x):
        return self.body(x)

    def name(self):
        return "tagger"

    def metric_name(self):
        return self.metric.name() if self.metric is not None else ""

    def score(self, preds, labels):
        return (self.body(preds) - labels).sum()

    def prototypes(self):
        return self.body(torch.eye(4)).relu()

class Ranker(Tagger):
    def metric_name(self):
        return "rank"

    def prototypes(self):
        return self.body(torch.zeros(1, 4))

class Trainer:
    def __init__(self, model, optimizer, log):
        self.log = log
        self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")

    def train(self, loader):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
            self.optimizer.step()
        self.evaluate(x, y)

    def evaluate(self, x, y):
        with torch.no_grad():
            value = self.model(x).sum()
        LINE
        return value
"""
SEEN = """
def main(loader, log):
    model = Tagger()
    Trainer(model, torch.optim.SGD(model.parameters(), lr=0.1), log).train(loader)
"""


@pytest.mark.parametrize("made", ["", SEEN])
@pytest.mark.parametrize(
    ("line", "region"),
    [
        ('self.log.info(f"{self.model.metric_name()}: {value:.4f}")', False),
        ("self.log.info(self.model.name(), value)", False),
        ("self.log.info(self.model.prototypes().sum())", True),
        ("self.log.info(self.model.score([x], [y]))", True),
    ],
)
def test_a_method_that_is_given_nothing_is_a_forward_only_where_it_computes(made: str, line: str, region: bool) -> None:
    found = regions(TELLING.replace("LINE", line) + made)
    always = [["loss = torch.nn.functional.cross_entropy(self.model(x), y)"], ["value = self.model(x).sum()"]]
    assert sorted(found) == sorted([*always, [line]] if region else always)


def test_what_the_other_branch_computes_for_its_next_turn_is_no_part_of_a_loss() -> None:
    source = """
    import torch
    import torch.nn.functional as F
    from apex import amp

    def train(model, optimizer, loader, args):
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x, y in loader:
            if args.adversarial:
                delta = torch.zeros_like(x)
                for turn in range(args.turns):
                    delta.requires_grad_()
                    loss = F.cross_entropy(model(x, delta=delta), y)
                    with amp.scale_loss(loss, optimizer) as scaled_loss:
                        scaled_loss.backward()
                    scale = scaled_loss.item() // loss.item()
                    grad = delta.grad.clone() / scale
                    if args.norm == "l2":
                        delta = (delta + args.lr * grad / torch.norm(grad)).detach()
                    else:
                        delta = (delta + args.lr * grad.sign()).detach()
            else:
                loss = model(x)
                loss = loss.mean()
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    """
    assert sorted(regions(source)) == [
        ["loss = F.cross_entropy(model(x, delta=delta), y)"],
        ["loss = model(x)", "loss = loss.mean()"],
    ]


SCORED_BRANCHES = """
import torch
from torch import nn
from apex import amp

def train(model, criterion, optimizer, loader, args):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        outputs = model(x)
        if args.parts:
            part = {}
            soft = nn.Softmax(dim=1)
            for i in range(3):
                part[i] = outputs[i]
            score = soft(part[0]) + soft(part[1]) + SCORE
            _, found = torch.max(score, 1)
            loss = criterion(part[0], y)
            for i in range(2):
                loss += criterion(part[i + 1], y)
        else:
            loss = criterion(outputs, y)
            _, found = torch.max(outputs, 1)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
        print((found == y).sum())
"""


def test_scores_that_branches_compute_beside_their_losses_are_in_one_region_with_them() -> None:
    """Outside they would be computed in half, and each loss would have a region of its own."""
    (region,) = regions(SCORED_BRANCHES.replace("SCORE", "torch.softmax(part[2], 1)"))
    assert region == ["outputs = model(x)", "if args.parts:"]
    assert "AMP535" not in {f.code for f in rewrite(SCORED_BRANCHES.replace("SCORE", "soft(part[2])")).findings}


def test_what_else_branches_do_beside_their_losses_stays_outside() -> None:
    found = regions(SCORED_BRANCHES.replace("SCORE", "report(part[2])"))
    assert len(found) > 1
    assert not [line for region in found for line in region if "report" in line or line.startswith("if args.parts")]


PREPARED_TWICE = {
    "prepare.py": """
        import torch
        from apex import amp

        def prepare(model, level, optimizer=None):
            if level is not None:
                return amp.initialize(model, optimizer, opt_level=level)
            return model if optimizer is None else (model, optimizer)

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.body = torch.nn.Linear(4, 4)

            def encode(self, x):
                return self.body(x)
    """,
    "train.py": """
        import torch
        from apex import amp
        from prepare import Net, prepare
        from data import batches, options

        class Trainer:
            def __init__(self, model, level):
                self.model = model.cuda()
                optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
                self.model, self.optimizer = prepare(self.model, level, optimizer=optimizer)

            def train(self, loader):
                for x, y in loader:
                    contexts = []
                    first = self.first(x, contexts)
                    loss = first + self.second(contexts, y)
                    with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                        scaled_loss.backward()
                    self.optimizer.step()
                    self.optimizer.zero_grad()

            def first(self, x, contexts):
                contexts.append(self.model.encode(x))
                return contexts[0].float().mean()

            def second(self, contexts, y):
                hidden = self.model.encode(contexts[0])
                return (hidden.float() - y).pow(2).mean()

        if __name__ == "__main__":
            Trainer(Net(), options.level).train(batches)
    """,
    "agent.py": """
        import torch
        from prepare import Net, prepare

        class Agent:
            def __init__(self, level):
                self.model = Net()
                self.model = prepare(self.model, level)

            def act(self, x):
                with torch.no_grad():
                    return self.model.encode(x).argmax(-1)
    """,
}


def test_a_helper_that_gives_one_caller_the_model_alone_gives_another_no_optimizer_for_it() -> None:
    after = check_files(PREPARED_TWICE)["train.py"]
    region = '        with torch.autocast("cuda", dtype=torch.float16, enabled=self.scaler.is_enabled()):\n'
    assert region + "            contexts.append(self.model.encode(x))\n" in after
    assert region + "            hidden = self.model.encode(contexts[0])\n" in after


@pytest.mark.parametrize("scaled", ["loss", "model(x).sum()"])
def test_branches_that_become_one_leave_the_switch_to_the_region(scaled: str) -> None:
    """What `if` asked for mixed precision around the forward is gone with it: without, the region would always be on."""
    forward = "            loss = model(x).sum()\n" if scaled == "loss" else ""
    after = rewrite(
        f"""
import torch
from apex import amp

def main(args, model, optimizer, loader):
    if args.amp:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x in loader:
        optimizer.zero_grad()
        if args.amp:
{forward}            with amp.scale_loss({scaled}, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
{forward}            {scaled}.backward()
        optimizer.step()
"""
    ).after
    assert after is not None
    assert "if args.amp" not in after
    assert after.count("enabled=bool(args.amp)") == 2
    assert after.count("torch.autocast(") == 1


@pytest.mark.parametrize(
    ("call", "runs"),
    [
        ("self.model.loss(None).keys()", False),
        ("OrderedDict(self.model.meta_named_parameters())", False),
        ("self.model.loss(batch)", True),
        ("self.model.loss(None, batch)", True),
    ],
)
def test_what_a_model_only_tells_of_itself_gets_no_region(call: str, runs: bool) -> None:
    source = f"""
        import torch
        from collections import OrderedDict
        from apex import amp


        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(2, 2)

            def loss(self, *given):
                return {{"loss": None if given == (None,) else self.layer(given[-1]).mean()}}


        class Solver:
            def __init__(self, model, optimizer):
                self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")

            def names(self, batch):
                found = {call}
                return found

            def step(self, batch):
                loss = self.model.loss(batch)["loss"]
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad()


        solver = Solver(Net(), torch.optim.SGD([], lr=0.1))
        print(solver.names(None))
        solver.step(torch.ones(2, 2))
    """
    after = rewrite(source).after or ""
    assert (f"dtype=torch.float16):\n            found = {call}" in after) is runs
