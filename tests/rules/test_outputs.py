"""Values that leave a region where Apex promised float32: outputs under O2, NumPy arrays, binary cross entropy."""

from __future__ import annotations

from pathlib import Path

import pytest

from amp_migrate.findings import FileResult
from tests.rules.helpers import check_files, check_rewrite, rewrite, rewrite_files, run_files
from tests.rules.programs import APEX_LOOP, MODEL, apex, found, initialize, native
from tests.rules.trained import check_trained

LOOP = """
output = model(x)
loss = criterion(output, y)
optimizer.zero_grad()
with amp.scale_loss(loss, optimizer) as scaled_loss:
    scaled_loss.backward()
optimizer.step()
"""


def native_loop(forward: str) -> str:
    return f"""
with torch.autocast("cuda", dtype=torch.float16):
    output = {forward}
    loss = criterion(output, y)
optimizer.zero_grad()
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
"""


def after_evaluating(line: str, level: str = "O1") -> str:
    """The line that an evaluation line becomes."""
    tail = f"with torch.no_grad():\n    for x, y in loader:\n        output = model(x)\n        {line}\n"
    after = rewrite(apex(prepare=initialize(f'opt_level="{level}"'), tail=tail)).after
    assert after is not None
    return after.splitlines()[-1].strip()


# -- cast_model_outputs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "use",
    [
        "meter.update(output.argmax(1), y)",
        "meter.update(torch.softmax(output, 1))",
        "hits += (output > 0).sum()",
    ],
)
@pytest.mark.parametrize("level", ["O2", "O3"])
def test_o2_and_o3_return_float32_so_outputs_that_leave_the_region_are_cast(level: str, use: str) -> None:
    result = rewrite(apex(LOOP + use, initialize(f'opt_level="{level}"')))
    assert result.after is not None
    assert "        output = model(x).float()\n" in result.after
    assert found(result, "AMP503")


def test_outputs_that_stay_inside_are_not_cast() -> None:
    check_rewrite(apex(LOOP, initialize('opt_level="O2"')), native(native_loop("model(x)")))


def test_o1_promised_nothing_so_outputs_stay_as_they_are() -> None:
    use = "meter.update(output.argmax(1), y)"
    check_rewrite(apex(LOOP + use), native(native_loop("model(x)") + use))


def test_cast_model_outputs_asks_for_it_under_o1() -> None:
    use = "meter.update(output.argmax(1), y)"
    before = apex(LOOP + use, initialize('opt_level="O1", cast_model_outputs=torch.float32'))
    check_rewrite(before, native(native_loop("model(x).float()") + use))


def test_outputs_that_are_no_tensor_are_not_cast() -> None:
    after = rewrite(apex(LOOP.replace("criterion(output, y)", "output.loss"), initialize('opt_level="O2"'))).after
    assert after is not None
    assert ".float()" not in after


PREPARED = """
from network import Net
model = Net()
criterion = {criterion}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
NET = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), None
        self.last = nn.Linear(4, 3)
        self.lstm = nn.LSTM(4, 4)
    def heads(self, x):
        return [self.last(x), x]
    def same(self, parts):
        return parts
    def scores(self, x):
        scores = torch.relu(self.last(x))
        return scores.squeeze(1)
    def forward(self, x):
        {body}
"""


def logged(body: str, criterion: str = "project.criterion", log: str = "log(output)") -> dict[str, FileResult]:
    """A program whose network ends as given, and whose output is handed to a function outside of the region."""
    model = "import project\n" + PREPARED.format(criterion=criterion)
    source = apex(LOOP + log, initialize('opt_level="O2"'), model=model)
    return rewrite_files({"train.py": source, "network.py": NET.format(body=body)})


@pytest.mark.parametrize(
    "body",
    [
        "return self.last(x)",
        "return self.scores(x)",
        "x = self.last(x)\n        return x.view(-1, 3)",
        "x = torch.cat([self.last(x), x])\n        return x / 2",
        "return self.last(x) if self.training else self.scores(x)",
    ],
)
def test_an_output_is_cast_where_the_forward_returns_one_tensor(body: str) -> None:
    result = logged(body)["train.py"]
    assert result.after is not None
    assert "output = model(x).float()\n" in result.after


@pytest.mark.parametrize(
    "body",
    [
        "return [self.last(x), x]",
        "return self.heads(x)",
        "return {'scores': self.last(x)}",
        "out = self.last(x), x\n        return out",
        "return self.lstm(x)",
        "return self.same([self.last(x), x])",
        "if self.training:\n            return self.last(x), x\n        return self.last(x)",
        "return self.second(x)",
    ],
)
def test_what_may_be_a_list_is_not_cast_but_pointed_out(body: str) -> None:
    result = logged(body)["train.py"]
    assert result.after is not None
    assert "output = model(x)\n" in result.after
    (finding,) = [f for f in result.findings if f.code == "AMP503"]
    assert finding.review == "look"
    assert "output" in finding.message


def test_a_program_whose_model_returns_a_list_still_runs(tmp_path: Path) -> None:
    source = """
        import json
        import torch
        from apex import amp
        from network import Net

        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
        losses = []

        def log(output):
            losses.append(float(output[0].detach().sum()))

        def measure(output):
            return output[0].pow(2).mean() + output[1].mean()

        for step in range(3):
            output = model(torch.ones(2, 4))
            loss = measure(output)
            optimizer.zero_grad()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
            log(output)
        print(json.dumps({"losses": losses}))
        """
    texts = check_files({"train.py": source, "network.py": NET.format(body="return self.same([self.last(x), x])")})
    assert len(run_files(tmp_path, texts, "train.py")["losses"]) == 3


def test_a_list_is_not_cast_even_where_a_use_looks_like_that_of_a_tensor() -> None:
    result = logged("return self.heads(x)", "torch.nn.CrossEntropyLoss()")["train.py"]
    assert ".float()" not in (result.after or "")


def test_a_criterion_of_torch_shows_that_it_is_given_a_tensor() -> None:
    body = "return self.second(x)"
    assert "model(x).float()" in (logged(body, "torch.nn.CrossEntropyLoss()")["train.py"].after or "")
    assert "model(x).float()" not in (logged(body, "project.MyLoss()")["train.py"].after or "")


# -- NumPy -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("print(output.cpu().numpy())", "print(output.float().cpu().numpy())"),
        ("print(output.detach().cpu().numpy())", "print(output.detach().float().cpu().numpy())"),
        ("print(output.data.cpu().numpy())", "print(output.data.float().cpu().numpy())"),
    ],
)
def test_values_are_float32_before_numpy_as_o1_made_cpu_return(line: str, after: str) -> None:
    assert after_evaluating(line) == after


@pytest.mark.parametrize(
    "line",
    [
        "print(output.argmax(1).cpu().numpy())",
        "print((output > 0).cpu().numpy())",
        "print(output.float().cpu().numpy())",
        "print(output.long().cpu().numpy())",
        "print(y.cpu().numpy())",
        "print(output.tolist())",  # Python numbers: floats either way, and whole ones stay whole
    ],
)
def test_whole_numbers_and_float32_values_are_not_cast(line: str) -> None:
    assert after_evaluating(line) == line


@pytest.mark.parametrize("line", ["print(model.generate(x).cpu().numpy())", "print(ids.cpu().numpy())"])
def test_token_ids_stay_whole_numbers(line: str) -> None:
    text = after_evaluating(f"ids = model.generate(x); {line}")
    assert line in text


# -- binary cross entropy --------------------------------------------------------------------------------------------

BCE = MODEL + "\nbce = torch.nn.BCELoss()"


def bce_loop(*statements: str) -> str:
    """A loop that computes its loss with these statements."""
    _, rest = APEX_LOOP.split("\n", 2)[1:]
    return "\n".join(statements) + "\n" + rest


def test_binary_cross_entropy_stands_outside_because_autocast_refuses_it_on_cuda() -> None:
    before = apex(bce_loop("output = model(x)", "loss = bce(output, y)"), model=BCE)
    after = rewrite(before).after
    assert after is not None
    assert "float16):\n        output = model(x).float()\n    loss = bce(output, y)\n" in after


def test_binary_cross_entropy_is_announced() -> None:
    result = rewrite(apex(bce_loop("output = model(x)", "loss = bce(output, y)"), model=BCE))
    assert found(result, "AMP505")[0].review == "look"


@pytest.mark.parametrize("name", ["torch.nn.functional.binary_cross_entropy", "F.binary_cross_entropy"])
def test_the_functional_form_stands_outside_too(name: str) -> None:
    imports = "import torch.nn.functional as F\nfrom apex import amp"
    after = rewrite(apex(bce_loop("output = model(x)", f"loss = {name}(output, y)"), imports=imports)).after
    assert after is not None
    assert f"\n    loss = {name}(output, y)\n" in after


@pytest.mark.parametrize(
    "name", ["torch.nn.BCEWithLogitsLoss()", "torch.nn.CrossEntropyLoss()", "torch.nn.MSELoss()", "torch.nn.NLLLoss()"]
)
def test_losses_that_autocast_handles_stay_inside(name: str) -> None:
    model = f"{MODEL}\nloss_function = {name}"
    after = rewrite(apex(bce_loop("loss = loss_function(model(x), y)"), model=model)).after
    assert after is not None
    assert "        loss = loss_function(model(x), y)\n" in after


def test_a_batch_class_with_its_own_to_which_o2_called_is_reported() -> None:
    model = (
        "class Batch:\n    def __init__(self, x):\n        self.x = x\n\n"
        "    def to(self, *args, **kwargs):\n        return Batch(self.x.to(*args, **kwargs))\n\n\n" + MODEL
    )
    source = apex(LOOP.replace("model(x)", "model(Batch(x))"), initialize('opt_level="O2"'), model=model)
    assert any("Batch" in f.message for f in rewrite(source).findings)


def test_a_prediction_computed_from_the_output_reaches_it_as_float32() -> None:
    before = apex(bce_loop("output = torch.sigmoid(model(x))", "loss = bce(output, y)"), model=BCE)
    after = rewrite(before).after
    assert after is not None
    assert "\n    loss = bce(output" in after
    assert ".float()" in after


def test_a_forward_inside_its_call_is_taken_apart_or_reported() -> None:
    result = rewrite(apex(bce_loop("loss = bce(model(x), y)"), model=BCE))
    inside = result.after is not None and "        loss = bce(model(x), y)\n" in result.after
    assert not inside


# -- parts of an output, values computed from it ---------------------------------------------------------------------


def trained(loop: str, level: str = "O2") -> str:
    backward = "with amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()\noptimizer.step()\n"
    source = apex(loop.format(backward), prepare=initialize(f'opt_level="{level}"'))
    after = rewrite(source).after
    assert after is not None
    return after


def test_each_part_of_an_output_that_o2_returned_as_float32_is_cast_where_it_is_used() -> None:
    loop = "output, features = model(x)\nloss = criterion(output, y)\n{}meter.update(features.mean(), output.std())\n"
    assert "meter.update(features.float().mean(), output.float().std())" in trained(loop)


def test_a_part_that_may_be_no_tensor_is_pointed_out() -> None:
    loop = "output, features = model(x)\nloss = criterion(output, y)\n{}meter.update(features)\n"
    backward = "with amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()\noptimizer.step()\n"
    result = rewrite(apex(loop.format(backward), prepare=initialize('opt_level="O2"')))
    assert result.after is not None
    assert "meter.update(features)" in result.after
    (finding,) = [f for f in result.findings if f.code == "AMP503"]
    assert "features as float32; outside the region it may be float16 now" in finding.message
    assert finding.review == "look"


def test_what_is_seen_to_be_half_is_said_to_be() -> None:
    model = (
        "class Two(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.a = torch.nn.Linear(4, 2)\n\n    def forward(self, x):\n        return self.a(x), self.a(x)\n\n\n"
        "model = Two()"
    )
    loop = "output, features = model(x)\nloss = criterion(output, y)\n{}meter.update(features)\n"
    backward = "with amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()\noptimizer.step()\n"
    result = rewrite(apex(loop.format(backward), prepare=initialize('opt_level="O2"'), model=model))
    (finding,) = [f for f in result.findings if f.code == "AMP503"]
    assert "features as float32; outside the region it is float16 now" in finding.message


def test_under_o1_parts_stay_as_they_came() -> None:
    loop = "output, features = model(x)\nloss = criterion(output, y)\n{}meter.update(features.mean())\n"
    assert "meter.update(features.mean())" in trained(loop, "O1")


def test_what_is_written_into_a_part_of_a_tensor_has_its_dtype() -> None:
    loop = "output = model(x)\nbuffer = torch.zeros(3, 4)\nbuffer[rows] = output\nloss = criterion(buffer, y)\n{}"
    assert "output = model(x).float()\n" in trained(loop)
    assert "output = model(x)\n" in trained(loop, "O1")  # raised under O1 as it does natively


@pytest.mark.parametrize("transform", ["torch.fft.rfft(output)", "torch.stft(output, 512, return_complex=True)"])
def test_a_fourier_transform_takes_float32_as_o2_gave_it(transform: str) -> None:
    loop = f"output = model(x)\nspectrum = {transform}\nloss = criterion(spectrum.abs(), y)\n{{}}"
    assert "output = model(x).float()\n" in trained(loop)


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("keep(torch.sigmoid(output).cpu().numpy())", "keep(torch.sigmoid(output.float()).cpu().numpy())"),
        ("keep(output[:, 1].cpu().numpy())", "keep(output[:, 1].float().cpu().numpy())"),
        ("keep(torch.sigmoid(output[y]).cpu().numpy())", "keep(torch.sigmoid(output[y].float()).cpu().numpy())"),
        ('keep(output["a"].softmax(1).cpu().numpy())', 'keep(output["a"].float().softmax(1).cpu().numpy())'),
        ("keep(torch.sigmoid(x[y]).cpu().numpy())", "keep(torch.sigmoid(x[y]).cpu().numpy())"),
        (
            "keep(torch.sigmoid(output[y]).argmax(1).cpu().numpy())",
            "keep(torch.sigmoid(output[y]).argmax(1).cpu().numpy())",
        ),
        ("p = torch.sigmoid(output).argmax(1); keep(p.cpu().numpy())", "keep(p.cpu().numpy())"),
        ("p = output > 0; keep(p.cpu().numpy())", "keep(p.cpu().numpy())"),
    ],
)
def test_what_is_computed_from_an_output_is_float32_before_numpy_unless_it_counts(line: str, after: str) -> None:
    assert after in after_evaluating(line.replace("; ", "\n        "))


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("keep(output.cpu())", "keep(output.float().cpu())"),
        ("keep(output.detach().squeeze(1).cpu().sum())", "keep(output.detach().squeeze(1).float().cpu().sum())"),
        ("keep(x); output = output.cpu()", "output = output.float().cpu()"),
        ("keep(model(x).cpu())", "keep(model(x).float().cpu())"),
        ("keep(output.cpu().argmax(1))", "keep(output.cpu().argmax(1))"),
        ("keep(output.mean().cpu().item())", "keep(output.mean().cpu().item())"),
        ("keep(output.argmax(1).cpu())", "keep(output.argmax(1).cpu())"),
        ("keep(output.float().cpu())", "keep(output.float().cpu())"),
        ("output = output > 0; keep(output.cpu())", "keep(output.cpu())"),
        ("loss_value = model(x); keep(loss_value.cpu())", "keep(loss_value.cpu())"),
        ("keep(model.generate(x).cpu())", "keep(model.generate(x).cpu())"),
        ("keep(x.cpu())", "keep(x.cpu())"),
    ],
)
def test_an_output_that_goes_to_the_cpu_is_float32_as_apex_made_it(line: str, after: str) -> None:
    assert after in after_evaluating(line.replace("; ", "\n        "))


@pytest.mark.parametrize(
    ("line", "notes"),
    [
        ('keep(output["logits"].cpu())', 1),
        ("keep(output[0].detach().cpu().numpy())", 1),
        ('keep(output["logits"].argmax(1).cpu())', 0),
        ('keep(output["logits"].cpu().argmax(1))', 0),
        ('keep(y["logits"].cpu())', 0),
    ],
)
def test_a_part_of_an_output_that_goes_to_the_cpu_is_pointed_out(line: str, notes: int) -> None:
    tail = f"with torch.no_grad():\n    for x, y in loader:\n        output = model(x)\n        {line}\n"
    result = rewrite(apex(tail=tail))
    assert result.after is not None
    assert line in result.after
    assert [f.review for f in found(result, "AMP504")] == ["look"] * notes


HOST = """
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
outputs = []
with torch.no_grad():
    for x, y in loader:
        output = model(x)
        outputs.append(output.cpu())
outputs = torch.cat(outputs)
assert outputs.dtype is torch.float32
seen.append(outputs.mean())
"""


def test_outputs_of_a_whole_data_set_are_float32() -> None:
    assert "outputs.append(output.float().cpu())" in check_trained(HOST)


PARTS = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = build()

    def forward(self, x):
        scores = self.body(x)
        return scores, scores.argmax(1)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in loader:
    optimizer.zero_grad()
    scores, best = model(x)
    loss = criterion(scores, y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
total = torch.zeros(8, 1)
with torch.no_grad():
    for x, y in loader:
        scores, best = model(x)
        total += scores.float()
        scores, chosen = scores.cpu(), best.cpu()
        assert scores.dtype is torch.float32
        seen.append(scores[chosen].mean())
scores = total / len(loader)
seen.append(float(scores.cpu().numpy().sum()))
"""


def test_each_of_several_outputs_is_float32_on_the_cpu_and_indices_stay_whole() -> None:
    after = check_trained(PARTS)
    assert "scores.float().cpu(), best.cpu()" in after
    assert "scores.cpu().numpy().sum()" in after  # an accumulator, float32 already


WHOLE = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 3)

    def forward(self, x, y=None):
        logits = self.body(x)
        _, output = torch.max(logits, 1)
        if y is not None:
            return torch.nn.functional.cross_entropy(logits, y), output
        return logits, output


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
model = torch.nn.DataParallel(model)
for x, y in loader:
    optimizer.zero_grad()
    loss, output = model(x, (y[:, 0] > 0).long())
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    seen.append(clip_grad_norm_(amp.master_params(optimizer), 10.0))
    optimizer.step()
    assert output.cpu().detach().numpy().dtype == "int64"


def evaluate(model):
    for x, y in loader:
        logits, output = model(x)
        assert output.cpu().detach().numpy().dtype == "int64"
        assert logits.detach().cpu().numpy().dtype == "float32"


evaluate(model)
"""


def test_what_a_forward_returns_beside_its_predictions_is_read_there() -> None:
    after = check_trained(WHOLE)
    assert after.count("output.cpu().detach().numpy()") == 2
    assert "logits.detach().float().cpu().numpy()" in after


def test_several_outputs_of_which_nothing_is_known_are_pointed_out_where_they_go_to_the_cpu() -> None:
    tail = "with torch.no_grad():\n    for x, y in loader:\n        heat, field = model(x)\n        REST\n"
    result = rewrite(
        apex(tail=tail.replace("REST", "heat, field = heat.cpu(), field.cpu()\n        parse(heat, field)"))
    )
    assert result.after is not None
    assert [f.review for f in found(result, "AMP504")] == ["review", "review"]


@pytest.mark.parametrize(
    ("lines", "written"),
    [
        ("output = output / 3; keep(output.cpu().numpy())", "keep(output.float().cpu().numpy())"),
        ("sums += output; output = sums / 3; keep(output.cpu().numpy())", "keep(output.cpu().numpy())"),
        ("output = y; keep(output.cpu().numpy())", "keep(output.cpu().numpy())"),
        ("output = output.view(-1); keep(output.cpu())", "keep(output.float().cpu())"),
        ("output = y if skip else y; keep(output.cpu())", "keep(output.cpu())"),
    ],
)
def test_the_binding_that_reaches_the_cpu_decides(lines: str, written: str) -> None:
    assert written == after_evaluating(lines.replace("; ", "\n        "))


def test_with_o0_nothing_is_half() -> None:
    tail = "with torch.no_grad():\n    for x, y in loader:\n        output = model(x)\n        keep(output.cpu().numpy())\n"
    result = rewrite(apex(LOOP, prepare=initialize('opt_level="O0"'), tail=tail))
    assert "keep(output.cpu().numpy())" in (result.after or "")
    assert not found(result, "AMP504")
    assert all("off" in f.message for f in found(result, "AMP501"))


@pytest.mark.parametrize(("name", "advice"), [("aux_loss", ""), ("extra", "on the tensors in it")])
def test_o2_outputs_that_are_no_tensor_are_pointed_out_as_such_and_losses_are_float32(name: str, advice: str) -> None:
    tail = f"with torch.no_grad():\n    for x, y in loader:\n        output, {name} = model(x)\n        keep(output.mean())\n"
    tail += f"        first, second = {name}\n        log({name})\n"
    notes = found(rewrite(apex(prepare=initialize('opt_level="O2"'), tail=tail)), "AMP503")
    assert [f.message for f in notes if f"{name} as" in f.message and advice in f.message] == [
        f.message for f in notes if f"{name} as" in f.message
    ]
    assert any(f"{name} as" in f.message for f in notes) is bool(advice)


@pytest.mark.parametrize(
    ("name", "whole"), [("box_mask", True), ("labels", True), ("lengths", True), ("features", False)]
)
def test_what_may_hold_whole_numbers_is_not_said_to_be_half(name: str, whole: bool) -> None:
    """O2 made what is floating float32, and left class numbers and masks alone."""
    tail = f"with torch.no_grad():\n    for x, y in loader:\n        output, {name} = model(x)\n        keep(output.mean())\n"
    tail += f"        log({name})\n"
    notes = found(rewrite(apex(prepare=initialize('opt_level="O2"'), tail=tail)), "AMP503")
    (message,) = [f.message for f in notes if f"{name} as" in f.message]
    assert ("unless it holds whole numbers" in message) is whole


def test_what_is_written_into_something_unknown_is_pointed_out() -> None:
    loop = "output = model(x)\nrows[0] = output\nloss = criterion(rows, y)\n{}"
    backward = "with amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()\noptimizer.step()\n"
    result = rewrite(apex(loop.format(backward), prepare=initialize('opt_level="O2"')))
    assert "output = model(x)\n" in (result.after or "")
    assert [f.review for f in found(result, "AMP503")] == ["look"]


TRAINER = """
    import torch

    class Trainer:
        def __init__(self, args, model, loader):
            self.args, self.model, self.loader = args, model, loader

        def train(self):
            model = self.model
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            if self.args.fp16:
                from apex import amp
                model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            for x, y in self.loader:
                loss = torch.nn.functional.mse_loss(model(x), y)
                if self.args.fp16:
                    with amp.scale_loss(loss, optimizer) as scaled_loss:
                        scaled_loss.backward()
                else:
                    loss.backward()
                optimizer.step()
                optimizer.zero_grad()
    """
EVALUATION = """
    import torch
    from trainer import Trainer
    from options import parse, make

    def evaluate(model, loader):
        predictions = []
        for x, y in loader:
            with torch.no_grad():
                logits = model(x)
            predictions.extend(logits.detach().cpu().numpy().argmax(axis=1))
        return predictions

    def run():
        args = parse()
        model, loader = make()
        Trainer(args, model, loader).train()
        print(evaluate(model, loader))

    run()
    """


def test_where_no_region_is_written_nothing_is_half() -> None:
    results = rewrite_files({"trainer.py": TRAINER, "main.py": EVALUATION})
    assert results["trainer.py"].after is not None
    assert results["main.py"].after is None
    assert [f.code for f in results["main.py"].findings] == ["AMP502"]


UNPACKED = """
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    seen.append(clip_grad_norm_(amp.master_params(optimizer), 10.0))
    optimizer.step()


class Net(torch.nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x, y):
        logits = self.body(x)
        return [criterion(logits, y), logits, None]


model = Net(model)
with torch.no_grad():
    for x, y in loader:
        outputs = model(x, y)
        if seen:
            print("there")
        eval_loss, logits = outputs[:2]
        seen.append(eval_loss.item())
        array = logits.detach().cpu().numpy()
        assert array.dtype == "float32"
        assert y.detach().cpu().numpy().dtype == "float32"
"""


def test_one_of_several_outputs_that_are_taken_apart_below_the_region() -> None:
    after = check_trained(UNPACKED)
    assert "array = logits.detach().float().cpu().numpy()" in after
    assert after.count(".float()") == 1


PART = """
import torch
import torch.nn.functional as F
from apex import amp


def predict(model, loader, scale, classify):
    found = []
    for x, y in loader:
        features, prob = model(x)
        BETWEEN
        found.extend(prob.cpu().numpy())
    return found


model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.Adam(model.parameters())
model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
for x, y in loader:
    optimizer.zero_grad()
    loss = F.mse_loss(model(x)[1], y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
predict(model, loader, None, True)
"""


@pytest.mark.parametrize(
    ("between", "written"),
    [
        ("if scale:\n            prob = scale.back(prob)", "prob = scale.back(prob.float())"),
        ("prob = torch.flip(prob, (0,))", "prob = torch.flip(prob.float(), (0,))"),
        (
            "if scale:\n            prob = scale.back(y)",
            "prob = scale.back(y)",
        ),  # another value: nothing is known of prob
        ("prob = scale.back(prob)", "prob = scale.back(prob)"),  # what is a tensor afterwards may have been none
        ("if scale:\n            _, prob = model(scale.back(prob))", "_, prob = model(scale.back(prob))"),
    ],
)
def test_what_is_computed_from_an_output_under_its_own_name_is_computed_in_float32(between: str, written: str) -> None:
    after = rewrite(PART.replace("BETWEEN", between)).after
    assert after is not None
    assert f"{written}\n" in after


HELPER = """
import torch
from apex import amp

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 3)

    def forward(self, x):
        return GIVEN

def embed(model, x):
    with torch.no_grad():
        return model(x)

model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="LEVEL")
for x, y in loader:
    loss = model(x).sum()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
seen = embed(model, x)
output = model(x)
print(torch.nn.functional.one_hot(output))
"""


@pytest.mark.parametrize(
    ("given", "level", "cast"),
    [
        ("self.body(x)", "O2", True),
        ("self.body(x)", "O1", False),
        ("self.body(x).argmax(1)", "O2", False),
        ("(self.body(x), x)", "O2", False),
    ],
)
def test_what_a_helper_returns(given: str, level: str, cast: bool) -> None:
    after = rewrite(HELPER.replace("GIVEN", given).replace("LEVEL", level)).after
    assert after is not None
    assert (".float()" in after) == cast
    assert ("        return model(x).float()" in after) == cast


SAMPLING = """
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from apex import amp
from zoo import build


FILTERED = -float("inf")


def keep(logits, top_p):
    ordered, indices = torch.sort(logits, descending=True)
    sums = torch.cumsum(F.softmax(ordered, dim=-1), dim=-1)
    logits[indices[sums > top_p]] = -float("inf")
    return logits


def sample(model, ids, temperature=1.0, top_p=0.9):
    outputs = model(ids)
    logits = outputs[0][0, -1, :] / temperature
    logits[:2] = FILTERED
    return torch.multinomial(F.softmax(keep(logits, top_p), dim=-1), num_samples=1)


def train(loader):
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="LEVEL")
    for ids in loader:
        optimizer.zero_grad()
        loss = model(ids, labels=ids)[0]
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
        print(sample(model, ids, 0.7))


@dataclass
class Sampler:
    temperature: float

    def sample(self, ids):
        return sample(self.model, ids, self.temperature)
"""


def test_a_part_of_what_a_models_tuple_holds_is_cast_where_o2_gave_it_in_float32() -> None:
    result = rewrite(SAMPLING.replace("LEVEL", "O2"))
    assert result.after is not None
    assert "    logits = outputs[0][0, -1, :].float() / temperature\n" in result.after
    assert "AMP535" not in {f.code for f in result.findings}


def test_what_a_helper_computes_from_in_float32_is_cast_where_it_is_taken() -> None:
    """The helper is handed a part of the outputs, divided by a number that every call gives, and gives it back."""
    result = rewrite(SAMPLING.replace("LEVEL", "O1"))
    assert result.after is not None
    assert "    logits = outputs[0][0, -1, :].float() / temperature\n" in result.after
    assert result.after.count(".float()") == 1
    assert "AMP535" not in {f.code for f in result.findings}


def test_an_output_that_is_cast_on_its_way_to_numpy_is_not_pointed_out() -> None:
    """The line that follows has its .float() already, and says so."""
    tail = "with torch.no_grad():\n    feat = model(x)\nfeat = feat.detach().cpu().numpy()\nprint(feat[0])\n"
    result = rewrite(apex(APEX_LOOP, initialize('opt_level="O3"'), tail=tail))
    assert result.after is not None
    assert "feat.detach().float().cpu().numpy()" in result.after
    assert "outside the region it is float16" not in str(found(result, "AMP503"))


@pytest.mark.parametrize(
    "used", ["write(output[0])", "first, second = output[0], output[1]", "rows.append([output[1]])"]
)
@pytest.mark.parametrize("level", ["O2", "O3"])
def test_of_what_certainly_is_one_tensor_any_use_is_cast_where_it_is_taken(used: str, level: str) -> None:
    source = f"""
        import torch
        from apex import amp

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.body = torch.nn.Linear(4, 4)

            def forward(self, x):
                return self.body(x)

        model = amp.initialize(Net().cuda(), opt_level="{level}")
        with torch.no_grad():
            for x in loader:
                output = model(x)
                {used}
        """
    result = rewrite(source)
    assert result.after is not None, result.findings
    assert "output = model(x).float()" in result.after
    assert [f.review for f in result.findings if f.code == "AMP503"] == ["as-is"]
    (said,) = [f.message for f in result.findings if f.code == "AMP112"]
    assert "give half where they gave float32" in said
    cast = rewrite(source.replace(used, "output = output.float()"))
    assert cast.after is not None
    assert cast.after.count(".float()") == 1
    normed = rewrite(source.replace("self.body = torch.nn.Linear(4, 4)", "self.body = torch.nn.LayerNorm(4)"))
    assert normed.after is not None
    assert ".float()" not in normed.after
    assert not [f for f in normed.findings if "give half" in f.message]


NUMBERS = """
import torch
from apex import amp
from data import loader


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 2)

    def forward(self, x, y):
        count = COUNT
        scores = self.body(x)
        hits = (scores.max(1)[1] == y).sum().item()
        return torch.nn.functional.cross_entropy(scores, y), hits / count


net = Net().cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net, optimizer = amp.initialize(net, optimizer, opt_level="O2")
total = 0.0
for x, y in loader:
    loss, hits = net(x, y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    total = total + hits
"""


@pytest.mark.parametrize("count", ["x.shape[0]", "x.size(0)", "len(x)", "x.numel()", "8", "int(x.shape[0])"])
def test_a_number_that_a_model_returns_is_no_half_tensor(count: str) -> None:
    result = rewrite(NUMBERS.replace("COUNT", count))
    assert result.status == "migrated"
    assert "hits.float()" not in (result.after or "")
    assert not [f for f in result.findings if f.code == "AMP503" and "hits" in f.message]


def test_what_may_be_a_tensor_is_told_still() -> None:
    source = NUMBERS.replace("COUNT", "self.body.weight[0, 0]")
    assert [f for f in rewrite(source).findings if f.code == "AMP503" and "hits" in f.message]


def test_what_went_to_the_cpu_as_float32_is_cast_once() -> None:
    tail = """
with torch.no_grad():
    for x, y in loader:
        scores = model(x).cpu()
        hits += (torch.topk(scores, 2, dim=-1)[1] == 0).sum().item()
        scores = scores.numpy()
        keep(scores)
"""
    after = rewrite(apex(prepare=initialize('opt_level="O2"'), tail=tail)).after
    assert after is not None
    assert after.count(".float()") == 1
