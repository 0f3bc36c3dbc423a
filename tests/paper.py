"""The mechanism once more, slowly: client by client, as the paper writes it. Tests hold the fast code to it."""

from __future__ import annotations


def theorem_1(clients, training, constants, strategies):
    """The right-hand side of Theorem 1, with its double sum over rounds and local steps."""
    L, mu, eta = constants.smoothness, constants.strong_convexity, training.step_size
    T, H, G2, beta = training.rounds, training.local_steps, constants.gradient_bound, constants.label_shift
    bound = L * (1 - mu * eta) ** (T * H) * constants.initial_distance
    for t in range(1, T + 1):
        for h in range(1, H + 1):
            per_step = 0.0
            for i in range(len(clients)):
                p, variance, d = clients.weight[i], clients.gradient_variance[i], clients.heterogeneity[i]
                e, D, gamma = (
                    strategies.labeling_effort[i],
                    strategies.batch_size[i],
                    strategies.report_scale[i],
                )
                per_step += p**2 * variance / D + 6 * L * p * d + p * (1 - e) * beta
                per_step += 2 * p * ((gamma - 1) ** 2 + (H - 1) ** 2) * (G2 + variance / D + (1 - e) * beta)
            bound += 2 * L * eta**2 * (1 - mu * eta) ** (T * H - (t - 1) * H - h) * per_step
    return bound


def sound_recursion(clients, training, constants, strategies):
    """The sound bound as the recursion of its proof: step by step, a jump at the end of each round."""
    L, mu, eta = constants.smoothness, constants.strong_convexity, training.step_size
    H, G2, beta = training.local_steps, constants.gradient_bound, constants.label_shift
    x = mu * eta
    noise = bias = drift = jump = absence = hetero = 0.0
    for i in range(len(clients)):
        p, variance, q = clients.weight[i], clients.gradient_variance[i], clients.participation[i]
        e, D, gamma = strategies.labeling_effort[i], strategies.batch_size[i], strategies.report_scale[i]
        S = 2 * ((1 - e) * beta + variance / D + G2)
        noise += p**2 * variance / D
        bias += p * (1 - e) * beta
        drift += p * S
        jump += p * (gamma - 1) ** 2 * S
        absence += p**2 * (1 - q) / q * (2 + 2 * (gamma - 1) ** 2) * S
        hetero += p * clients.heterogeneity[i]
    step = (1 + x / 2) * (6 * L * eta**2 * hetero + 2 * eta**2 * (H - 1) ** 2 * drift)
    step += eta**2 * noise + (eta**2 + 2 * eta / mu) * bias
    end = (eta**2 * H**2 + 4 * eta * H / mu) * jump + eta**2 * H**2 * absence
    rho = 1 - x / 4
    distance = constants.initial_distance
    for _ in range(training.rounds):
        for _ in range(H):
            distance = rho * distance + (1 + H * x / 4) * step
        distance += end
    return L / 2 * distance


def gap(model, strategies):
    total = model.constant
    for i in range(len(model)):
        e, D, gamma = strategies.labeling_effort[i], strategies.batch_size[i], strategies.report_scale[i]
        total += model.sampling[i] / D + model.labeling[i] * (1 - e)
        total += (gamma - 1) ** 2 * (
            model.reporting[i] + model.reporting_sampling[i] / D + model.reporting_labeling[i] * (1 - e)
        )
    return total


def lceme_payoff(clients, model, training, assigned, strategies, i):
    """Client i's expected payoff under LCEME, from the definitions."""
    T = training.rounds * clients.participation[i]
    price = T * clients.sample_cost[i]
    honest = model.constant + sum(model.sampling[j] / assigned[j] for j in range(len(model)))
    slope = price * assigned[i] ** 2 / model.sampling[i]
    base = slope * (honest + model.optimal_loss) + price * assigned[i]
    reward = base - slope * (gap(model, strategies) + model.optimal_loss) + clients.labeling_cost[i]
    return reward - clients.labeling_cost[i] * strategies.labeling_effort[i] - price * strategies.batch_size[i]
