"""The small GPT of char_gpt.py on several ranks, each with its share of the optimizer's state.

DistributedDataParallel averages the gradients; ZeroRedundancyOptimizer keeps 1/n of AdamW's state
on each of n ranks, and steps on 1/n of the parameters.

Expected: test bits per character at most 3
Run: python examples/zero_gpt.py, or adjoint run --nproc 2 examples/zero_gpt.py
"""

import os

import char_gpt
from char_gpt import CONTEXT, bits_per_character, load

import adjoint as torch
import adjoint.distributed as dist
import adjoint.nn.functional as F
from adjoint.distributed.optim import ZeroRedundancyOptimizer
from adjoint.nn.parallel import DistributedDataParallel

STEPS = 3 if os.environ.get("ADJOINT_SMOKE") else 300
BATCH = 16  # of all ranks together


def train(model, optimizer, steps):
    """Each rank draws its own rows of each batch; the last mean loss of all ranks."""
    text = load("argparse", "ast", "calendar", "configparser", "datetime", "difflib", "inspect")
    rows = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(steps):
        count = BATCH // dist.get_world_size()
        starts = torch.randint(0, len(text) - CONTEXT, (count, 1), generator=rows)
        places = starts + torch.arange(CONTEXT)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(text[places]).flatten(0, 1), text[places + 1].flatten())
        loss.backward()
        optimizer.step()
    dist.all_reduce(total := loss.detach().clone(), dist.ReduceOp.AVG)
    return total.item()


def main():
    dist.init_process_group()
    torch.manual_seed(0)
    model = DistributedDataParallel(char_gpt.build_model())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=3e-3)
    loss = train(model, optimizer, STEPS)
    optimizer.consolidate_state_dict()  # now `state_dict` of rank 0 is that of AdamW alone
    bits = bits_per_character(model.module, load("shlex"))
    whole = 2 * 4 * sum(p.numel() for p in model.parameters())
    if dist.get_rank() == 0:
        print(f"ranks: {dist.get_world_size()}")
        print(f"state on this rank: {optimizer.state_bytes() / whole:.3f} of AdamW's")
        print(f"last loss: {loss:.4f}")
        print(f"test bits per character: {bits:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
