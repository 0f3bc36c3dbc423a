"""The public names, which are the mechanism's; `truthfl` has them all. Loads NumPy and nothing heavier."""

from truthfl.errors import InfeasibleError, InputError, ServiceError, TruthflError
from truthfl.mechanism.assignment import labeling_floor, optimal_batch_sizes
from truthfl.mechanism.baselines import (
    FlatPay,
    LeaveOneOutPay,
    PayPerClaimedSample,
    ShapleySharePay,
    flat_pay,
    leave_one_out_pay,
    pay_per_claimed_sample,
    shapley_share_pay,
)
from truthfl.mechanism.bounds import paper_bound, sound_bound
from truthfl.mechanism.contract import Contract, lceme
from truthfl.mechanism.contribution import (
    Shapley,
    leave_one_out_drops,
    model_coalition_loss,
    observe,
    shapley_drops,
)
from truthfl.mechanism.deviation import (
    Deviation,
    best_deviation,
    free_riding_gain,
    is_individually_rational,
    is_truthful,
)
from truthfl.mechanism.label_shift import (
    feature_norm_bound,
    linear_regression_label_shift,
    softmax_label_shift,
)
from truthfl.mechanism.loss_model import LossModel
from truthfl.mechanism.observation import Measure, Observation, PaymentRule
from truthfl.mechanism.payoff import client_payoff, pay_on_model, server_payoff, work_cost
from truthfl.mechanism.screening import ScreeningMenu, best_double_deviation
from truthfl.mechanism.setting import Clients, Constants, Training
from truthfl.mechanism.spread import confidence_margin, pay_standard_deviation, samples_for_share
from truthfl.mechanism.strategies import Strategies

__all__ = [
    "Clients",
    "Constants",
    "Contract",
    "Deviation",
    "FlatPay",
    "InfeasibleError",
    "InputError",
    "LeaveOneOutPay",
    "LossModel",
    "Measure",
    "Observation",
    "PayPerClaimedSample",
    "PaymentRule",
    "ScreeningMenu",
    "ServiceError",
    "Shapley",
    "ShapleySharePay",
    "Strategies",
    "Training",
    "TruthflError",
    "best_deviation",
    "best_double_deviation",
    "client_payoff",
    "confidence_margin",
    "feature_norm_bound",
    "flat_pay",
    "free_riding_gain",
    "is_individually_rational",
    "is_truthful",
    "labeling_floor",
    "lceme",
    "leave_one_out_drops",
    "leave_one_out_pay",
    "linear_regression_label_shift",
    "model_coalition_loss",
    "observe",
    "optimal_batch_sizes",
    "paper_bound",
    "pay_on_model",
    "pay_per_claimed_sample",
    "pay_standard_deviation",
    "samples_for_share",
    "server_payoff",
    "shapley_drops",
    "shapley_share_pay",
    "softmax_label_shift",
    "sound_bound",
    "work_cost",
]
