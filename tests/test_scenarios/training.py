"""The patterns of training: GAN, actor-critic, adapters, truncated BPTT, clipping, averaging."""

from __future__ import annotations

from .harness import const, leaf, scenario, see

X = [[1.0, 2.0], [-1.0, 0.5], [0.3, -0.7]]


def sgd(t, parameters, rate=0.1):
    """One step, by hand."""
    with t.no_grad():
        for p in parameters:
            if p.grad is not None:
                p -= rate * p.grad
                p.grad = None


def matrix(t, rows, columns, scale=1.0):
    return leaf(
        t, [[scale * ((3 * i + 5 * j) % 7 - 3) / 4 for j in range(columns)] for i in range(rows)]
    )


@scenario
def gan_step_with_detach(t):
    g, d = matrix(t, 2, 2), matrix(t, 2, 1)
    noise, real = const(t, X), const(t, [[2.0, 1.0], [1.5, 1.0], [2.5, 0.5]])
    trace = []
    for _ in range(3):
        fake = (noise @ g).tanh()
        loss_d = (1 + (fake.detach() @ d).exp()).log().mean() + (
            1 + (-(real @ d)).exp()
        ).log().mean()
        loss_d.backward()
        trace.append((see(g.grad), see(d.grad)))
        sgd(t, [d])
        loss_g = (1 + (-(fake @ d)).exp()).log().mean()
        loss_g.backward()
        trace.append((see(g.grad), see(d.grad)))
        sgd(t, [g])
        d.grad = None
    return trace, g, d


@scenario
def gan_generator_step_with_a_frozen_discriminator(t):
    g, d = matrix(t, 2, 2), matrix(t, 2, 1)
    d.requires_grad_(False)
    ((const(t, X) @ g).relu() @ d).mean().backward()
    d.requires_grad_(True)
    return g.grad, d.grad


@scenario
def actor_critic(t):
    trunk, actor, critic = matrix(t, 2, 3), matrix(t, 3, 2), matrix(t, 3, 1)
    h = (const(t, X) @ trunk).tanh()
    log_p = (h @ actor).log_softmax(dim=-1)
    value = (h @ critic).squeeze(-1)
    returns, actions = const(t, [1.0, 0.0, 2.0]), const(t, [0, 1, 1], "int64")
    advantage = returns - value
    chosen = log_p.gather(1, actions.unsqueeze(1)).squeeze(1)
    loss = -(chosen * advantage.detach()).mean() + 0.5 * (advantage**2).mean()
    loss = loss + 0.01 * (log_p.exp() * log_p).sum(-1).mean()
    loss.backward()
    return loss, trunk.grad, actor.grad, critic.grad


@scenario
def actor_critic_without_the_detach_differs(t):
    trunk, actor, critic = matrix(t, 2, 3), matrix(t, 3, 2), matrix(t, 3, 1)
    h = (const(t, X) @ trunk).tanh()
    advantage = const(t, [1.0, 0.0, 2.0]) - (h @ critic).squeeze(-1)
    (-((h @ actor).log_softmax(-1)[:, 0] * advantage).mean()).backward()
    return trunk.grad, critic.grad


@scenario
def clipped_policy_ratio(t):
    logits = leaf(t, [[0.2, -0.1], [1.0, 0.5], [0.0, 3.0]])
    old = const(t, [-0.5, -1.2, -0.1])
    advantage = const(t, [1.0, -1.0, 2.0])
    ratio = (logits.log_softmax(-1)[:, 1] - old).exp()
    loss = -t.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    loss.backward()
    return loss, logits.grad


@scenario
def multi_task_with_a_shared_backbone(t):
    backbone, head1, head2 = matrix(t, 2, 3), matrix(t, 3, 1), matrix(t, 3, 2)
    h = (const(t, X) @ backbone).relu()
    loss1 = (h @ head1).pow(2).mean()
    loss2 = (h @ head2).log_softmax(-1)[:, 0].mean()
    loss1.backward(retain_graph=True)
    after_one = see([backbone.grad, head1.grad]), head2.grad
    loss2.backward()
    return after_one, backbone.grad, head1.grad, head2.grad


@scenario
def task_gradients_compared_by_autograd_grad(t):
    backbone = matrix(t, 2, 3)
    h = (const(t, X) @ backbone).tanh()
    (g1,) = t.autograd.grad(h.pow(2).sum(), backbone, retain_graph=True)
    (g2,) = t.autograd.grad(h.exp().sum(), backbone)
    projected = g1 - (g1 * g2).sum() / (g2 * g2).sum() * g2
    backbone.grad = projected
    return g1, g2, backbone.grad


@scenario
def frozen_adapter_in_the_middle(t):
    first, adapter, last = matrix(t, 2, 3), matrix(t, 3, 3), matrix(t, 3, 1)
    adapter.requires_grad_(False)
    ((const(t, X) @ first).tanh() @ adapter).tanh().matmul(last).sum().backward()
    return first.grad, adapter.grad, last.grad


@scenario
def frozen_backbone_trained_head(t):
    backbone, head = matrix(t, 2, 3), matrix(t, 3, 1)
    backbone.requires_grad_(False)
    h = (const(t, X) @ backbone).relu()
    (h @ head).sum().backward()
    return h.requires_grad, backbone.grad, head.grad


@scenario
def frozen_head_trained_backbone(t):
    backbone, head = matrix(t, 2, 3), matrix(t, 3, 1)
    head.requires_grad_(False)
    ((const(t, X) @ backbone).relu() @ head).sum().backward()
    return backbone.grad, head.grad


@scenario
def low_rank_adapter(t):
    w, a, b = matrix(t, 2, 3), matrix(t, 2, 1), matrix(t, 1, 3)
    w.requires_grad_(False)
    (const(t, X) @ (w + a @ b)).pow(2).sum().backward()
    return w.grad, a.grad, b.grad


@scenario
def gradual_unfreezing(t):
    layers = [matrix(t, 2, 2, s) for s in (0.5, 0.7, 0.9)]
    for w in layers[:-1]:
        w.requires_grad_(False)
    trace = []
    for step in range(3):
        layers[2 - step].requires_grad_()
        h = const(t, X)
        for w in layers:
            h = (h @ w).tanh()
        h.sum().backward()
        trace.append([see(w.grad) for w in layers])
        sgd(t, layers)
    return trace, layers


@scenario
def truncated_backpropagation_through_time(t):
    w, h = matrix(t, 2, 2, 0.5), const(t, [[0.1, -0.2]])
    trace = []
    for step in range(6):
        h = (h @ w + const(t, [X[step % 3]])).tanh()
        if step % 2 == 1:
            h.pow(2).sum().backward()
            trace.append(see(w.grad))
            sgd(t, [w])
            h = h.detach()
    return trace, w, h


@scenario
def full_backpropagation_through_time(t):
    w, h = matrix(t, 2, 2, 0.5), const(t, [[0.1, -0.2]])
    states = []
    for step in range(6):
        h = (h @ w + const(t, [X[step % 3]])).tanh()
        states.append(h)
    t.cat(states).pow(2).sum().backward()
    return w.grad


@scenario
def gradient_clipping_by_norm(t):
    a, b = leaf(t, [3.0, 4.0]), leaf(t, [12.0])
    ((a**2).sum() / 2 + (b**2).sum() / 2).backward()
    norm = t.nn.utils.clip_grad_norm_([a, b], 1.0)
    return norm, a.grad, b.grad


@scenario
def gradient_clipping_by_value(t):
    a = leaf(t, [3.0, -4.0, 0.1])
    ((a**2).sum()).backward()
    t.nn.utils.clip_grad_value_([a], 1.0)
    return a.grad


@scenario
def exponential_moving_average_of_weights(t):
    w = leaf(t, [1.0, -1.0])
    target = w.detach().clone()
    for _ in range(4):
        (w**4).sum().backward()
        sgd(t, [w])
        with t.no_grad():
            target.mul_(0.9).add_(w, alpha=0.1)
    return w, target, target.requires_grad


@scenario
def target_network_gets_no_gradient(t):
    q, target = matrix(t, 2, 2), matrix(t, 2, 2, 0.5)
    state, following = const(t, X), const(t, X[::-1])
    with t.no_grad():
        goal = 1.0 + 0.9 * (following @ target).max(dim=1).values
    ((state @ q)[:, 0] - goal).pow(2).mean().backward()
    return q.grad, target.grad, goal.requires_grad


@scenario
def momentum_by_hand(t):
    w, velocity = leaf(t, [1.0, -2.0]), t.zeros(2, dtype=t.float64)
    for _ in range(5):
        w.grad = None
        (w**2).sum().backward()
        with t.no_grad():
            velocity.mul_(0.9).add_(w.grad)
            w.sub_(velocity, alpha=0.1)
    return w, velocity


@scenario
def adam_by_hand(t):
    w = leaf(t, [1.0, -2.0])
    m, v = t.zeros(2, dtype=t.float64), t.zeros(2, dtype=t.float64)
    for step in range(1, 6):
        w.grad = None
        (w**4).sum().backward()
        with t.no_grad():
            m.lerp_(w.grad, 0.1)
            v.mul_(0.999).addcmul_(w.grad, w.grad, value=0.001)
            w.addcdiv_(m / (1 - 0.9**step), (v / (1 - 0.999**step)).sqrt().add_(1e-8), value=-0.1)
    return w, m, v


@scenario
def two_optimizers_on_disjoint_parameters(t):
    a, b = leaf(t, [1.0, 2.0]), leaf(t, [3.0])
    first, second = t.optim.SGD([a], lr=0.1), t.optim.SGD([b], lr=0.01, momentum=0.9)
    for _ in range(3):
        first.zero_grad()
        second.zero_grad()
        (a.sum() * b).pow(2).sum().backward()
        first.step()
        second.step()
    return a, b, a.grad, b.grad


@scenario
def optimizer_skips_a_parameter_without_grad(t):
    a, b = leaf(t, [1.0]), leaf(t, [2.0])
    optimizer = t.optim.SGD([a, b], lr=0.5, weight_decay=0.1)
    (a * 3).sum().backward()
    optimizer.step()
    return a, b, b.grad


@scenario
def optimizer_with_adam(t):
    w = leaf(t, [1.0, -2.0])
    optimizer = t.optim.Adam([w], lr=0.1)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = ((w - 3) ** 2).sum()
        loss.backward()
        optimizer.step()
        losses.append(see(loss))
    return losses, w


@scenario
def zero_grad_sets_to_none_or_zero(t):
    w = leaf(t, [1.0, -2.0])
    optimizer = t.optim.SGD([w], lr=0.1)
    (w * 2).sum().backward()
    optimizer.zero_grad(set_to_none=False)
    zeroed = see(w.grad)
    optimizer.zero_grad()
    return zeroed, w.grad


@scenario
def adversarial_example(t):
    w, x = matrix(t, 2, 1), leaf(t, X)
    loss = (x @ w).pow(2).sum()
    (gx,) = t.autograd.grad(loss, x)
    attacked = (x + 0.1 * gx.sign()).detach()
    (attacked @ w).pow(2).sum().backward()
    return attacked, w.grad, x.grad


@scenario
def reparameterised_sampling(t):
    mean, log_sigma = leaf(t, [0.5, -0.5]), leaf(t, [0.1, 0.2])
    noise = const(t, [[1.0, -1.0], [0.3, 0.4]])
    z = mean + log_sigma.exp() * noise
    kl = (-log_sigma + (log_sigma.mul(2).exp() + mean**2) / 2 - 0.5).sum()
    (z.pow(2).mean() + kl).backward()
    return mean.grad, log_sigma.grad


@scenario
def contrastive_loss_with_cosine_similarity(t):
    x = leaf(t, [[1.0, 2.0], [0.5, -1.0], [2.0, 3.0]])
    unit = x / x.norm(dim=1, keepdim=True)
    logits = (unit @ unit.T) / 0.5
    logits = logits.masked_fill(t.eye(3, dtype=t.bool), float("-inf"))
    loss = -logits.log_softmax(dim=1)[[0, 1, 2], [2, 0, 0]].mean()
    loss.backward()
    return loss, x.grad


@scenario
def stop_gradient_branch_of_a_siamese_net(t):
    w, predictor = matrix(t, 2, 3), matrix(t, 3, 3)
    z1, z2 = const(t, X) @ w, const(t, X[::-1]) @ w
    (((z1 @ predictor) - z2.detach()) ** 2).mean().backward()
    return w.grad, predictor.grad


@scenario
def attention_block(t):
    q, k, v = matrix(t, 2, 2), matrix(t, 2, 2, 0.5), matrix(t, 2, 2, -0.7)
    x = leaf(t, X)
    scores = (x @ q) @ (x @ k).T / 2**0.5
    mask = t.ones(3, 3, dtype=t.bool).triu(1)
    weights = scores.masked_fill(mask, float("-inf")).softmax(-1)
    (weights @ (x @ v)).pow(2).sum().backward()
    return weights, x.grad, q.grad, k.grad, v.grad


@scenario
def batch_normalisation_by_hand(t):
    x, gamma, beta = leaf(t, X), leaf(t, [1.0, 2.0]), leaf(t, [0.0, 0.5])
    mean, var = x.mean(0), x.var(0, correction=0)
    ((x - mean) / (var + 1e-5).sqrt() * gamma + beta).pow(3).sum().backward()
    return x.grad, gamma.grad, beta.grad


@scenario
def dropout_by_a_given_mask(t):
    x, w = leaf(t, X), matrix(t, 2, 2)
    mask = const(t, [[1, 0], [0, 1], [1, 1]], "bool")
    (t.where(mask, x @ w * 2, t.zeros((), dtype=t.float64))).pow(2).sum().backward()
    return x.grad, w.grad


@scenario
def loss_scaling_and_unscaling(t):
    w = leaf(t, [1.0, -2.0])
    ((w**3).sum() * 1024).backward()
    scaled = see(w.grad)
    w.grad.div_(1024)
    return scaled, w.grad


@scenario
def regularisation_by_a_parameter_norm(t):
    w1, w2 = matrix(t, 2, 2), matrix(t, 2, 1)
    loss = (const(t, X) @ w1 @ w2).pow(2).mean() + 0.1 * sum(p.pow(2).sum() for p in (w1, w2))
    loss = loss + 0.05 * (w1.abs().sum() + w2.abs().sum())
    loss.backward()
    return w1.grad, w2.grad


@scenario
def distillation_from_a_teacher(t):
    teacher, student = matrix(t, 2, 3), matrix(t, 2, 3, 0.3)
    with t.no_grad():
        p = (const(t, X) @ teacher / 2).softmax(-1)
    log_q = (const(t, X) @ student / 2).log_softmax(-1)
    loss = (p * (p.log() - log_q)).sum(-1).mean() * 4
    loss.backward()
    return loss, teacher.grad, student.grad


@scenario
def expert_mixture_with_hard_routing(t):
    gate, experts = matrix(t, 2, 2), [matrix(t, 2, 1), matrix(t, 2, 1, -0.5)]
    x = const(t, X)
    p = (x @ gate).softmax(-1)
    top, index = p.max(dim=-1)
    outputs = t.cat([x @ w for w in experts], dim=1)
    (outputs.gather(1, index.unsqueeze(1)).squeeze(1) * top).sum().backward()
    return index, gate.grad, [w.grad for w in experts]


@scenario
def embedding_lookup_with_repeats(t):
    table = leaf(t, [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])
    tokens = const(t, [[0, 2, 2], [1, 2, 0]], "int64")
    (table[tokens].sum(1).tanh() * const(t, [[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    return table.grad


@scenario
def tied_embedding_and_output_layer(t):
    table = leaf(t, [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])
    h = table[const(t, [0, 1], "int64")].tanh()
    loss = -(h @ table.T).log_softmax(-1)[[0, 1], [1, 2]].mean()
    loss.backward()
    return loss, table.grad
