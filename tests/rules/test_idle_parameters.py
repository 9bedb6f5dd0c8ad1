"""A parameter that only told a function of Apex goes, with what its calls hand over; one that means more stays."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.rules.helpers import rewrite, rewrite_files, run_files
from tests.rules.programs import found

PROGRAM = '''
    import argparse
    import json

    import torch
    from apex import amp

    {above}
    def train(model, optimizer, batches{parameter}):
        """One epoch.

        Args:
            model (nn.Module): the network
            optimizer (Optimizer): steps it
            fp16 (bool): whether in half precision
            batches (list): what it learns
        """
        losses = []
        for x in batches:
            optimizer.zero_grad()
            loss = model(x).float().pow(2).mean()
            if fp16:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            {more}
            optimizer.step()
            losses.append(loss.item())
        return losses


    def main(args):
        torch.manual_seed(0)
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        if args.fp16:
            model, optimizer = amp.initialize(model, optimizer)
        batches = [torch.ones(1, 2) for _ in range(3)]
        return {call}


    if __name__ == "__main__":
        parser = argparse.ArgumentParser()
        parser.add_argument("--fp16", action="store_true")
        print(json.dumps(main(parser.parse_args())))
'''


def program(
    parameter: str = ", fp16=False",
    call: str = "train(model, optimizer, batches, fp16=args.fp16)",
    more: str = "pass",
    above: str = "",
) -> str:
    return dedent(PROGRAM).replace("{above}", above).format(parameter=parameter, call=call, more=more)


@pytest.mark.parametrize(
    ("parameter", "call", "native_parameters", "native_call"),
    [
        (", fp16=False", "train(model, optimizer, batches, fp16=args.fp16)", "batches", "batches"),
        (", fp16", "train(model, optimizer, batches, args.fp16)", "batches", "batches"),
        (", fp16: bool = False", "train(model, optimizer, batches, bool(args.fp16))", "batches", "batches"),
        (
            ", fp16=False, verbose=False",
            "train(model, optimizer, batches, args.fp16, True)",
            "batches, verbose=False",
            "batches, True",
        ),
        (
            ", verbose=False, *, fp16=False, last=0",
            "train(model, optimizer, batches, last=1)",
            None,  # beside a star of its own
            None,
        ),
        (
            ", *, last=0, fp16=False",
            "train(model, optimizer, batches, last=1, fp16=args.fp16)",
            "batches, *, last=0",
            "batches, last=1",
        ),
        (
            " \\\n    , \\\n    fp16 \\\n    =False \\\n    ",
            "train(model, optimizer, batches \\\n        , args.fp16 \\\n        )",
            "batches \\\n    ",
            "batches \\\n        ",
        ),
        (
            ",\n          fp16=False,\n",
            "train(\n    model, optimizer, batches, fp16=args.fp16,\n    )",
            "batches,\n",
            "batches,\n    ",
        ),
        (  # a comment behind another one speaks of that
            ", fp16=False, last=0",
            "train(model, optimizer, batches, args.fp16, last=1  # of all\n    )",
            "batches, last=0",
            "batches, last=1  # of all\n    ",
        ),
    ],
)
def test_it_goes_from_the_signature_the_calls_and_the_docstring(
    parameter: str, call: str, native_parameters: str | None, native_call: str | None, tmp_path: Path
) -> None:
    result = rewrite(program(parameter, call))
    assert result.after is not None
    assert result.status == "migrated"
    kept = native_parameters is None
    assert bool(found(result, "AMP125")) is not kept
    assert ("fp16 (bool)" in result.after) is kept
    if not kept:
        assert f"def train(model, optimizer, scaler, {native_parameters})" in result.after
        assert f"train(model, optimizer, scaler, {native_call})" in result.after.replace("(\n    model", "(model")
    losses = run_files(tmp_path, {"train.py": result.after.replace('"cuda"', '"cpu"')}, "train.py")
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > losses[-1]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"more": "print(fp16)"}, "something else reads it"),
        ({"call": "train(model, optimizer, batches, fp16=args.pop())"}, "what is handed over does something"),
        ({"call": "train(model, optimizer, batches, **vars(args))"}, "what a call hands over is not seen"),
        ({"call": "train(model, optimizer, *[batches, args.fp16])[:9]"}, "what a call hands over is not seen"),
        ({"call": "train(model, optimizer, batches, fp16=args.fp16  # as asked\n    )"}, "a comment tells of it"),
        ({"above": "@torch.enable_grad()"}, "a decorator may hand it over"),
        (
            {
                "call": "train(model, optimizer, batches, fp16=args.fp16) or getattr(args, 'hooks')(locals(), globals()['train'])"
            },
            "",
        ),
        ({"more": "print(sorted(locals()))"}, "all local names are read at once"),
    ],
)
def test_it_stays_where_it_may_still_mean_something(changes: dict[str, str], reason: str) -> None:
    result = rewrite(program(**changes))
    assert not found(result, "AMP125"), reason
    assert "fp16" in (result.after or result.before).split("def main")[0]


def test_one_that_a_function_only_hands_on_goes_with_it() -> None:
    source = program(", fp16=False", "epochs(model, optimizer, batches, args.fp16)", more="pass").replace(
        "def main(args):",
        "def epochs(model, optimizer, batches, fp16):\n"
        "    for _ in range(2):\n        losses = train(model, optimizer, batches, fp16=fp16)\n    return losses\n\n\n"
        "def main(args):",
    )
    result = rewrite(source)
    assert result.after is not None
    assert "def epochs(model, optimizer, scaler, batches):" in result.after
    assert "epochs(model, optimizer, scaler, batches)" in result.after
    assert len(found(result, "AMP125")) == 2


def test_it_goes_from_calls_in_other_files_and_stays_where_others_may_call() -> None:
    library = program().split("def main")[0]
    caller = dedent(
        """
        import sys

        import torch
        from apex import amp

        from steps import train


        def main(args):
            model = torch.nn.Linear(2, 2)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            if args.fp16:
                model, optimizer = amp.initialize(model, optimizer)
            return train(model, optimizer, [torch.ones(1, 2)], fp16=args.fp16)


        if __name__ == "__main__":
            main(sys.modules["settings"].args)
        """
    )
    both = rewrite_files({"steps.py": library, "run.py": caller})
    assert "def train(model, optimizer, scaler, batches):" in str(both["steps.py"].after)
    assert "train(model, optimizer, scaler, [torch.ones(1, 2)])" in str(both["run.py"].after)
    kept = "getattr(sys.modules['steps'], 'train')"
    by_name = rewrite_files({"steps.py": library, "run.py": caller + f"\nTRAIN = {kept}\n"})
    assert "fp16=False" in str(by_name["steps.py"].after or by_name["steps.py"].before)
