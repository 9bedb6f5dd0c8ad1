"""Prints, as JSON, the output dtype of every operation of op_calls.py under autocast on the device given."""

from __future__ import annotations

import json
import sys

import torch
from op_calls import CALLS, DTYPES, result_dtype


def observed(device: str) -> dict[str, str]:
    found = {}
    for op in CALLS:
        for given in DTYPES:
            torch.manual_seed(0)
            try:
                with torch.autocast(device, dtype=torch.float16):
                    found[f"{op} {given}"] = result_dtype(op, given, device)
            except RuntimeError:
                found[f"{op} {given}"] = "error"
    return found


if __name__ == "__main__":
    print(json.dumps(observed(sys.argv[1])))
