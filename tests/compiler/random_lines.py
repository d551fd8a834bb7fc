"""The lines of which random programs are made (`random_growth.py`): templates, by kind.

A `{}` or `{0}` is a tensor of floating point that is there, `{d}` a dimension.
"""

from __future__ import annotations

import adjoint as ad

UNARY = (
    "tanh({})", "sin({})", "exp({} * 0.3)", "sigmoid({})", "F.softplus({})", "F.gelu({})",
    "F.silu({})", "F.relu({} - 0.0371)", "abs({} - 0.0113)", "square({})", "-{}",
    "sqrt({0} * {0} + 1)", "log1p({0} * {0})", "clamp({}, -1.3, 0.71)", "F.leaky_relu({} + 0.013)",
    "F.elu({} + 0.017)", "F.hardtanh({} * 2)", "reciprocal({0} * {0} + 1)", "erf({})", "atan({})",
    "cos({})", "rsqrt({0} * {0} + 1)", "expm1({} * 0.2)", "{} ** 2", "{} ** 3 * 0.1",
    "nan_to_num({})", "F.mish({})", "F.logsigmoid({})", "sinh({} * 0.2)", "floor({} * 0.713)",
    "round({} * 0.713)", "sign({} - 0.0391)", "F.softsign({})", "tanh({}).acos()",
)  # fmt: skip
SCALED = (
    "{} * 1.5", "{} + 0.25", "1.0 - {}", "{} / 3", "2.0 / ({0} * {0} + 2)", "{} * s", "{} + n",
    "{} * world.scale", "{} - world.numbers[0]", "{} * world.numbers[1]", "s * {}", "{} * True",
)  # fmt: skip
BINARY = (
    "{} + {}", "{} - {}", "{} * {}", "{0} / ({1} * {1} + 1)", "maximum({}, {} + 0.0173)",
    "minimum({}, {} - 0.0119)", "where({0} > {1} + 0.0137, {0}, {1} * 2)", "atan2({}, {} + 0.051)",
    "lerp({}, {}, 0.3)", "addcmul({0}, {1}, {0}, value=0.5)", "hypot({}, {} + 1.5)",
    "logaddexp({}, {})", "add({}, {}, alpha=0.7)", "F.mse_loss({}, {}.expand_as({0}))",
    "({0} > {1} + 0.013).double()", "Both.apply({}, {})[1]", "sub({}, {}, alpha=2)",
    "F.smooth_l1_loss({}, {}.expand_as({0}), reduction='none')",
)  # fmt: skip
REDUCED = (
    "{}.sum({d})", "{}.sum({d}, keepdim=True)", "{}.mean({d})", "{}.amax({d}, keepdim=True)",
    "{}.amin({d})", "{}.var({d}, correction=0)", "{}.std({d}, keepdim=True, correction=0)",
    "{}.logsumexp({d})", "({} + 0.7).norm(dim={d})", "{}.cumsum({d})", "{}.tanh().prod({d})",
    "{}.softmax({d})", "{}.log_softmax({d})", "{}.max({d})[0]", "{}.sort({d})[0]",
    "{}.argmax({d}).double()", "({} > 0.131).any({d}).double()", "{}.topk(1, {d})[0]", "{}.sum()",
    "{}.mean()", "({} * {}).sum().sqrt()", "{}.tanh().cumprod({d})", "{}.min({d}).values",
    "F.normalize({} + 0.3, dim={d})", "{}.median({d})[0]", "F.layer_norm({0}, {0}.shape[-1:])",
    "{}.flip({d})", "{}.roll(1, {d})", "{}.var()", "{}.logcumsumexp({d})", "{}.diff(dim={d})",
)  # fmt: skip
PRODUCTS = (
    "{0} @ {1}", "{0} @ {1}.T", "{0}.T @ {1}", "F.linear({0}, {1})", "outer({0}[0], {1}[0])",
    "einsum('ij,kj->ik', {0}, {1})", "addmm({0} @ {0}.T, {1}, {1}.T)", "mm({0}, {1}.t())",
    "({0}.unsqueeze(0) @ {1}.unsqueeze(0).mT)[0]",
    "bmm({0}.expand(2, -1, -1), {1}.T.expand(2, -1, -1))",
)  # fmt: skip
VIEWS = (
    "{}.transpose(0, -1)", "{}.T", "{}.reshape(-1)", "{}.unsqueeze(0)", "{}.unsqueeze(-1)",
    "{}.squeeze()", "{}.expand(2, *{0}.shape)", "{}[1:]", "{}[::2]", "{}[..., 0]", "{}[0]",
    "{}.diagonal()", "{}.unbind(0)[-1]", "{}.chunk(2)[0]", "{}.split(2)[-1]", "{}.flatten()",
    "{}.narrow(-1, 0, 1)", "{}.permute(1, 0)", "{}.movedim(0, -1)", "{}.detach()", "{}[:, 1:]",
    "{}[..., None]", "{}.view(-1)", "{}[-1:]", "{}.select(-1, 0)", "{}.view_as({0})",
    "{}[..., ::2]", "{}.unfold(0, 2, 1)", "{}.swapaxes(0, 1)", "{}.contiguous()",
    "{}.reshape(1, -1)", "{}[1:][:1]",
)  # fmt: skip
MOVED = (
    "cat([{}, {}])", "stack([{0}, {0} * 2])", "cat([{}, {}], -1)", "{}.repeat(2, 1)",
    "F.pad({}, (1, 0))", "{}[ad.tensor([0, 0, -1])]", "{}.index_select(0, ad.tensor([0, 0]))",
    "{0}.tril()", "{0}.triu(1)", "{0}.masked_fill({0} > 0.317, -0.5)",
    "{0}.gather(0, ad.zeros({0}.shape, dtype=ad.int64))", "{}.clone()",
    "{0}.new_full((2,), 0.5) + {0}.sum()", "zeros_like({})", "ones_like({})", "full_like({}, 0.25)",
    "tile({}, (2,))", "hstack([{}, {}])", "vstack([{}, {}])", "F.one_hot(i, 5).double()",
    "arange(3) * {0}.sum()", "world.table[i]", "F.embedding(i, world.table)",
    "{0}.index_add(0, ad.tensor([0]), {0}[:1])", "take_along_dim({0}, {0}.argsort(-1), -1)",
    "{0}.scatter_add(0, ad.zeros({0}.shape, dtype=ad.int64), {0})", "{0}[{0}.shape[0] // 2]",
    "F.interpolate({0}[None], scale_factor=2.0)[0]", "block_diag({}, {})",
    "meshgrid({0}[0], {1}[0], indexing='ij')[0]",
)  # fmt: skip
CASTS = (
    "{}.float().double()", "{}.to(ad.float32)", "{}.double()", "({} * 3.137).long().double()",
    "({} > 0.093).double()", "({0} * 2.13).int() + {0}", "{}.to(ad.float32).exp().double() * 0.1",
    "{0}.type_as(world.count)", "({} > 0.217).logical_not().double()",
)  # fmt: skip
DRAWN = (
    "F.dropout({}, 0.3)", "{0} + 0.1 * ad.randn_like({0})", "ad.rand_like({0}) * {0}",
    "ad.bernoulli(ad.sigmoid({}))", "model.drop({})", "{0} * ad.rand((), dtype=ad.float64)",
    "{0} + ad.randn({0}.shape, generator=world.generator, dtype=ad.float64)",
    "ad.randint(0, 5, (3,)).double()", "{0}[ad.randperm({0}.shape[0])]",
    "F.dropout({}, 0.5, training=model.training)", "ad.normal({}, 0.5)",
)  # fmt: skip
CUSTOM = (
    "Square.apply({})", "Steep.apply({}, 0.7)", "Steep.apply({}, s)", "Both.apply({0}, {0})[0]",
    "world.inner({})", "checkpoint(lambda v: (v * 2).tanh(), {}, use_reentrant=False)",
    "checkpoint(lambda v: F.dropout(v.sin(), 0.4), {}, use_reentrant=False)",
    "(lambda v: v * world.scale)({})", "ad.func.grad(lambda v: v.tanh().square().sum())({})",
    "ad.func.vmap(lambda v: v * v.sum())({})", "Doubled.apply({0}.clone())", "Signs.apply({})[0]",
    "Signs.apply({})[1]", "checkpoint(model.linear, {}, use_reentrant=False)",
    "checkpoint(lambda v: (v * model.weight.sum()).sin(), {}, use_reentrant=True)",
    "checkpoint(lambda v: model.drop(model.layer(v)), {}, use_reentrant=False)",
)  # fmt: skip
LAYERS = (
    "model.linear({})", "model.layer({})", "model.batch({})", "world.block({})",
    "model.cell({0}, {0})", "model.embedding(i)", "model.convolution({}[:, None])[:, 0]",
    "{} * model.weight", "{} + model.level", "F.linear({}, model.linear.weight, model.linear.bias)",
    "model.linear(model.linear({}).tanh())",
    "F.scaled_dot_product_attention({0}[None], {0}[None], {0}[None])[0]",
    "F.cross_entropy({0}, i % {0}.shape[1])", "{} - world.average", "{0} * model.seen.clamp(max=2)",
    "F.batch_norm({0}, None, None, training=True)",
    "F.layer_norm({0}, {0}.shape[-1:], model.weight)", "model.lstm({}[None])[0][0]",
    "model.normed({})", "model.spectral({})", "F.linear({}, model.linear.weight.T)",
    "model.gated({0}, gate={1})['gated']", "model.gated(x={0}, gate=s)['plain']",
    "F.group_norm({}[None], 1)[0]", "model.running({})",
)  # fmt: skip
WRITES = (
    "{}.mul_(1.5)", "{}.add_(0.5)", "{}.tanh_()", "{}.sub_({}.detach() * 0.1)", "{}.zero_()",
    "{}[0] = 0.25", "{}[:, 0:1] = 0.5", "{}[:, :1] *= 2", "{0}[1:] += {0}[:-1].clone()",
    "{0}.masked_fill_({0} > 0.313, 0.1)", "{}.clamp_(-0.51, 0.53)", "{0}[0] = {0}[-1] * 2",
    "{}.copy_({})", "{} += {}", "{} *= {}", "{} -= 0.5", "{0}.T.mul_(0.5)",
    "{0}.diagonal().fill_(1.0)", "{}.uniform_(0.0, 1.0)", "{}.normal_()",
    "{0}[ad.tensor([0, 0])] = 0.75", "{}.relu_()",
    "{0}.index_add_(0, ad.tensor([0]), {0}[:1].clone())", "{0}[{0} > 0.291] = 0.2", "{}.exp_()",
    "{0}.view(-1)[0] += 1", "{0}[..., -1].sin_()", "{}.addcmul_({}, {})", "{}.lerp_({}, 0.25)",
    "{}.data.mul_(0.5)", "{0}.data = {0}.data * 0.5", "{}.detach().mul_(0.5)",
    "{0}[1:].mul_(2.0)", "{0}.unbind(0)[0].zero_()",
    "{0}.unsqueeze(0)[0, 0] += {1}.sum()", "{0}.chunk(2)[0].add_(s)", "{}.squeeze_()", "{}.t_()",
    "{}.unsqueeze_(0)", "{0}[..., 0] = {0}[..., -1].clone()", "{0}.swapaxes(0, -1)[:1] *= 3",
    "ad.add({0}, 1.0, out={0})", "{0}.expand(1, *{0}.shape)[0].mul_(0.5)", "{}.set_({}.clone())",
    "{}.requires_grad_()", "{}.detach_()", "{0}.transpose(0, -1)[0] = {1}.sum()", "{}.neg_()",
)  # fmt: skip
OF_STATES = (
    "model.seen += 1",
    "model.level.mul_(0.9)",
    "model.level.copy_({}.detach().sum().tanh().expand_as(model.level))",
    "world.average.mul_(0.9).add_({}.detach().mean(), alpha=0.1)",
    "world.count.add_(1)",
    "model.level[0] = 0.5",
    "world.table[1:3] *= 0.9",
    "world.table[0] = world.average",
    "world.average += model.weight.detach()",
    "model.level.uniform_(generator=world.generator)",
    "model.level.data.mul_(0.9)",
    "model.level[:1].copy_({}.detach().sum().tanh())",
    "world.table.T[0] = 0.25",
    "world.average.view(-1)[0] += 1",
)
# What is set, and not written.
SETS = (
    "model.steps += 1",
    "world.steps += 1",
    "world.hidden = (0.5 * {}).detach()",
    "world.hidden = world.hidden * 0.5 + {}.detach().mean()",
    "world.memo['k'] += 0.5",
    "world.memo['h'] = {}.detach().sum()",
    "count += 1",
    "model.level = model.level * 0.9 + 0.1",
    "world.scale = world.scale * 0.9",
    "world.numbers[1] = world.numbers[0] * 0.5",
    "model.last = {}.detach()",
    "world.average = {}.detach().mean() + world.average * 0.5",
    "model.seen = model.seen + 1",
    "world.flag = not world.flag",
    "world.hidden = {}",
    "world.memo = {{'k': world.memo['k'] + 1, 'h': {}.detach().sum()}}",
    "world.times = 1 + world.steps % 2",
    "world.pair = ({}.detach().sum(), world.steps)",
)
OF_SET = (
    "{} * model.steps",
    "{} + world.hidden.sum()",
    "{} * world.memo['k']",
    "{} + world.memo['h']",
    "{} * count",
    "{} / (1 + world.steps)",
    "{} + model.last.mean()",
    "{} * 0.9 ** world.steps",
    "{} - world.pair[0]",
    "{} + world.pair[1]",
    "{} * (world.steps > 1)",
)
CONTROL = (
    "ad.cond({0}.sum() > 0.131, lambda a: a * 2, lambda a: a.sin(), ({0},))",
    "ad.cond({0}.mean() > world.average.mean(), lambda a, b: a + b.sum() * model.weight.sum(),"
    " lambda a, b: a * model.weight.sum() - b.mean(), ({0}, {1}))",
    "ad.while_loop(lambda k, a: k < 3, lambda k, a: (k + 1, a.tanh() + s),"
    " (ad.zeros((), dtype=ad.int64), {0}))[1]",
    "ad.while_loop(lambda a: a.abs().sum() > 1.713, lambda a: (a * 0.5,), ({0},))[0]",
    "ad.while_loop(lambda k, a: k < world.times, lambda k, a: (k + 1, a * model.weight.sum()),"
    " (ad.zeros((), dtype=ad.int64), {0}))[1]",
    "ad.scan(lambda c, r: (c * 0.5 + r, c.sin() * r), {0}[0], {0})[1]",
    "ad.scan(lambda c, r: ((c + r * model.weight.sum()).tanh(), c), {0}[0], {0})[0]",
    "ad.scan(lambda c, r: (c + r.sum(), c * n), {0}.sum() * 0.1, {0}, reverse=True)[1]",
    "ad.cond({0}.sum() > 0.217, "
    "lambda a: ad.scan(lambda c, r: (c + r.sum(), c), a.sum(), a.reshape(1, -1))[1].sum() + a,"
    " lambda a: a * 0.5, ({0},))",
    "ad.cond(ad.tensor(world.flag), lambda a: a * world.scale, lambda a: -a, ({0},))",
)
NARROWED = (
    "F.linear({}.float(), model.linear.weight.float()).double()",
    "({0}.float() @ {1}.float().T).double()",
    "model.gated({0}.float(), gate=0.5)['plain'].double()",
    "({0}.float() @ {0}.float().T).softmax(-1).double()",
    "{0}.bfloat16().double()",
    "({0}.bfloat16() + {1}.bfloat16()).double()",
    "{0}.bfloat16().sum(0).double()",
    "{}.half().exp().double() * 0.1",
    "F.layer_norm({0}.float(), {0}.shape[-1:]).double()",
)
# Statements about a tensor that wants gradients.
HOOKED = (
    "{}.register_hook(lambda g: g * 0.5)", "{}.retain_grad()",
    "{}.register_hook(lambda g: (world.average.add_(g.detach().mean()), None)[1])",
    "{}.register_hook(lambda g: g.clamp(-0.1, 0.1))", "{0}.register_hook(lambda g: g * s)",
)  # fmt: skip
OF_PARAMETERS = (
    "with ad.no_grad():\n    model.weight.mul_(0.99)",
    "with ad.no_grad():\n    model.weight.add_(world.average, alpha=0.1)",
    "with ad.no_grad():\n    model.linear.weight[0] = 0.1",
    "with ad.no_grad():\n    for p in model.parameters():\n        p.sub_(0.01 * p)",
    "with ad.no_grad():\n    nn.init.normal_(model.linear.bias, std=0.1)",
    "with ad.no_grad():\n    for p in model.linear.parameters():\n        p.clamp_(-0.613, 0.613)",
)
OF_GRADIENTS = (
    "nn.utils.clip_grad_norm_(model.parameters(), 0.5)", "model.weight.grad = None",
    "nn.utils.clip_grad_value_(model.parameters(), 0.113)",
    "for p in model.parameters():\n    if p.grad is not None:\n        p.grad.mul_(0.5)",
    "model.weight.grad.add_(ad.randn_like(model.weight), alpha=0.01)",
    "model.weight.grad = model.weight.detach() * 0.5", "model.weight.grad.zero_()",
    "for p in model.parameters():\n    if p.grad is not None:\n        p.grad = p.grad * 0.7",
    "model.linear.weight.grad[0] = 0.1", "nn.utils.clip_grad_norm_([model.weight], s * s)",
    "world.average.add_(model.weight.grad)", "v = model.weight.grad\nv.mul_(0.5)",
    "model.weight.grad = ad.autograd.grad((model.weight ** 2).sum(), model.weight)[0]",
)  # fmt: skip
CLEARED = (
    "optimizer.zero_grad()", "optimizer.zero_grad()", "optimizer.zero_grad(set_to_none=False)",
    "model.zero_grad()", "",
)  # fmt: skip
CHANGES = (
    "optimizer.param_groups[0]['lr'] *= 0.5", "model.eval()", "model.train()",
    "world.scale += 0.25", "world.times = 3 - world.times % 2", "world.flag = not world.flag",
    "world.numbers[0] += 1", "with ad.no_grad(): model.weight.mul_(0.9)", "ad.manual_seed(11)",
    "world.generator.manual_seed(3)", "model.weight = nn.Parameter(model.weight.detach() * 1.1)",
    "model.weight.grad = None", "model.weight.requires_grad_(not model.weight.requires_grad)",
    "model.zero_grad()", "model.linear.requires_grad_(not model.linear.bias.requires_grad)",
    "model.zero_grad(set_to_none=False)", "model.weight.grad = ad.ones_like(model.weight)",
    "world.average = world.average + 1", "world.average.add_(1)",
    "world.table = world.table.clone()",
    "model.load_state_dict({k: v * 1.01 for k, v in model.state_dict().items()})",
    "optimizer.load_state_dict(optimizer.state_dict())", "optimizer.state.clear()",
    "model.linear.weight.data = model.linear.weight.data * 0.9",
    "world.kept.append(model.weight.grad)", "world.kept.append(model.linear.weight.grad)",
    "model.level = model.level * 0.5",
    "model.linear = nn.Linear(*model.linear.weight.shape[::-1]).double()",
    "model.weight.register_hook(lambda g: g * 0.5)", "model.drop.p = 0.5",
    "model.linear.register_forward_hook(lambda module, given, found: found * 0.5)",
    "world.block.requires_grad_(False)", "model.layer.eps = 1e-3",
    "world.count = world.count.double()", "model.linear.bias.grad = model.weight.grad",
    "model.level = model.weight.detach()", "world.average = model.linear.weight.detach()[0]",
    "optimizer.add_param_group({'params': [ad.ones(2, requires_grad=True)]})",
    "optimizer.param_groups[0]['weight_decay'] = 0.1",
    "optimizer.param_groups[0].update({'momentum': 0.5} if world.is_sgd else {})",
    "optimizer.param_groups[0]['maximize'] = True", "optimizer.param_groups[0]['nesterov'] = True",
    "optimizer.param_groups[0]['betas'] = (0.8, 0.99)",
    "optimizer.param_groups[0]['amsgrad'] = True",
    "optimizer.param_groups[0]['lr'] = ad.tensor(0.02)", "optimizer.param_groups[0]['eps'] = 1e-3",
    "optimizer.param_groups[0]['foreach'] = False",
    "optimizer.state.pop(optimizer.param_groups[0]['params'].pop(), None)", "world.schedule.step()",
    "world.scaler.update(2.0)", "world.fail = True",
    "model.batch.train(not model.batch.training)", "model.batch.momentum = None",
    "model.batch.reset_running_stats()", "model.batch.track_running_stats = False",
    "world.shift = 3", "model.to(ad.float32)", "model.double()", "model.linear.float()",
    "model.steps = 7", "world.steps += 2", "world.hidden = ad.ones(3)", "world.memo['k'] = -1.5",
    "world.memo = {'k': 2, 'h': ad.ones(())}", "world.memo['h'] = 1.5", "model.last = ad.ones(2)",
    "model.linear.weight = model.linear.weight", "world.flag = world.flag and 1",
    "model.gated.forward = lambda x, gate: {'gated': x * gate, 'plain': x + 1}",
    "Model.factor = 2.0", "model.factor = 0.5", "world.scale = world.scale + 1",
    "nn.utils.parametrize.remove_parametrizations(model.normed, 'weight')",
    "model.lstm.flatten_parameters()", "model.spectral.eval()", "world.numbers.append(1.0)",
    "with ad.no_grad(): model.linear.weight.copy_(model.linear.weight.T)",
    "model.linear.weight.data.mul_(0.9)", "model.linear.weight.data[0] = 0.2",
    "world.second.param_groups[0]['lr'] *= 0.5",
    "model.load_state_dict(model.state_dict(), assign=True)", "model.weight.data = model.level",
    "optimizer.zero_grad()",
    "model.linear.register_full_backward_hook(lambda module, given, made: (given[0] * 0.5,)"
    " if given[0] is not None else None)",
    "model.linear.register_forward_pre_hook(lambda module, given: (given[0] * 0.5,))",
    "optimizer.register_step_post_hook(lambda *_: (world.average.add_(1), None)[1])",
    "world.table = world.table.T.contiguous().T", "world.average = model.level",
    "world.average = ad.from_numpy(world.average.numpy().copy())", "world.hidden = world.average",
)  # fmt: skip
SAFE = """
    tanh sin exp sigmoid abs square sqrt log1p clamp reciprocal erf atan cos rsqrt expm1
    nan_to_num sinh floor round sign maximum minimum where atan2 lerp addcmul hypot
    logaddexp add sub outer einsum addmm mm bmm cat stack zeros_like ones_like full_like
    tile hstack vstack arange take_along_dim block_diag meshgrid
"""
IN_AD = frozenset(SAFE.split())


BLOCKS = (
    "with ad.no_grad():", "for k in range(n):", "for k in range(world.times):", "if world.flag:",
    "if model.training:", "grads", "grads", "for t in x.unbind(0)[:3]:", "if x.shape[0] > 3:",
    "with ad.enable_grad():", "with ad.inference_mode():", "with ad.set_grad_enabled(world.flag):",
    "with ad.autocast('cpu', dtype=ad.bfloat16):", "if world.steps % 2:", "try", "handle",
)  # fmt: skip
MODES = {
    "no_grad": ad.no_grad, "inference": ad.inference_mode,
    "autocast": lambda: ad.autocast("cpu", dtype=ad.bfloat16),
}  # fmt: skip
STOPS = (
    "if world.fail:\n    raise ValueError('stopped')",
    "assert not world.fail, 'stopped'",
    "v = world.table[i + world.shift]",
    "try:\n    model.level.mul_(0.9)\n    if world.fail:\n        raise KeyError(1)\n"
    "except KeyError:\n    model.level.add_(1)",
)
TABLE = (
    (UNARY, 14), (SCALED, 8), (BINARY, 12), (REDUCED, 12), (PRODUCTS, 6), (VIEWS, 12), (MOVED, 10),
    (CASTS, 3), (DRAWN, 4), (CUSTOM, 5), (LAYERS, 13), (WRITES, 16), (OF_STATES, 5),
    (OF_PARAMETERS, 0.7), (BLOCKS, 7), (SETS, 5), (OF_SET, 4), (CONTROL, 5), (NARROWED, 0.8),
    (HOOKED, 3), (STOPS, 1.2),
)  # fmt: skip
STATEMENTS = (OF_STATES, OF_PARAMETERS, SETS, STOPS)
KINDS = [kind for kind, _ in TABLE]
WEIGHTS = [weight for _, weight in TABLE]
