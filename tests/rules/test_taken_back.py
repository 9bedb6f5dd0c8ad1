"""Where a part of a program is taken back, everything goes that was written on its account, and what was said of it."""

from __future__ import annotations

from tests.rules.helpers import rewrite_files

TASK = """
    import torch


    def train(args, model, data):
        optimizer = torch.optim.Adam(model.parameters())
        if args.fp16:
            from apex import amp
            model, optimizer = amp.initialize(model, optimizer, opt_level=args.fp16_opt_level)
        for x in data:
            loss = model(x).mean()
            if args.fp16:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()
            model.zero_grad()
        evaluate(args, model, data)


    def evaluate(args, model, data):
        model.eval()
        with torch.no_grad():
            return [show(forward(model, x)) for x in data]


    def forward(model, x):
        return {"logits": model(x)}


    def show(found):
        logits = found["logits"]
        return torch.nn.functional.softmax(logits, dim=1)


    def run(args):
        model = torch.nn.Linear(2, 2)
        if args.do_train:
            train(args, model, [torch.ones(2, 2)])
        if args.do_predict:
            print(len(evaluate(args, model, [torch.ones(2, 2)])))


    def test():
        class Args:
            def __init__(self, kind):
                self.kind = kind
                self.do_train = False
                self.do_predict = True
                self.fp16 = True

        args = Args("small")
        run(args)


    if __name__ == "__main__":
        test()
    """
MAIN = """
    import argparse
    from task import run

    parser = argparse.ArgumentParser()
    for option in ("do_train", "do_predict", "fp16"):
        parser.add_argument("--" + option, action="store_true")
    parser.add_argument("--fp16_opt_level", default="O1")
    run(parser.parse_args())
    """
INFER = """
    import argparse
    import torch
    from task import forward

    def infer(args, data):
        from apex import amp
        model = amp.initialize(torch.nn.Linear(2, 2).cuda(), enabled=args.fp16, opt_level="O2")
        for x in data:
            print(forward(model, x)["logits"].argmax(1))

    if __name__ == "__main__":
        parser = argparse.ArgumentParser()
        parser.add_argument("--fp16", action="store_true")
        infer(parser.parse_args(), [torch.ones(2, 2)])
    """


def test_what_the_audit_had_asked_for_on_its_account_goes_with_it() -> None:
    """`show` runs in the program alone that stays with Apex: nothing is half there that was not."""
    results = rewrite_files({"infer.py": INFER, "task.py": TASK, "main.py": MAIN})
    task = results["task.py"]
    assert [f.code for f in task.findings if f.status == "manual" and not f.cause] == ["AMP131"]
    assert "amp.initialize" not in (results["infer.py"].after or "amp.initialize")
    assert ".float()" not in (task.after or "")
    assert not [f for f in task.findings if f.code in ("AMP503", "AMP504", "AMP522")]
    assert not [f for f in task.findings if "is float32" in f.message]
