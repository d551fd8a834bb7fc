"""Run the cases of one package and print what they give, as JSON in the last line.

python -m adjoint run --as-torch tests/ecosystem/one.py timm [CASE ...]
python tests/ecosystem/one.py timm                            # with PyTorch itself
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
import warnings

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", CUDA_VISIBLE_DEVICES="")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
warnings.simplefilter("ignore")


def main(name, *chosen):
    import torch
    from common import told

    torch.set_num_threads(1)
    module = importlib.import_module(f"with_{name}")
    found = {}
    for case, function in list(vars(module).items()):
        if not case.startswith("case_") or (chosen and case.removeprefix("case_") not in chosen):
            continue
        begin = time.perf_counter()
        try:
            found[case.removeprefix("case_")] = {"value": told(function())}
        except Exception as error:
            traceback.print_exc()
            found[case.removeprefix("case_")] = {"error": f"{type(error).__name__}: {error}"}
        print(f"{name} {case} {time.perf_counter() - begin:.1f} s", file=sys.stderr)
    print("\n" + json.dumps(found))


main(*sys.argv[1:])
