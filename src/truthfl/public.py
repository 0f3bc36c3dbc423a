"""Public names of `truthfl`: mechanism and errors."""

from truthfl.errors import InfeasibleError, InputError, ServiceError, TruthflError
from truthfl.mechanism.assignment import labeling_floor, optimal_batch_sizes
from truthfl.mechanism.audition import Audition
from truthfl.mechanism.audition_deviation import best_choice
from truthfl.mechanism.audition_plan import AuditionMeasurement, plan_audition
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
from truthfl.mechanism.mechanism import LinearPay, Mechanism, PlanInputs
from truthfl.mechanism.observation import Evidence, Observation
from truthfl.mechanism.payoff import client_payoff, pay_on_model, server_payoff, work_cost
from truthfl.mechanism.peer_level import peer_shifts
from truthfl.mechanism.registry import find_mechanism, mechanism_kinds, register, unregister
from truthfl.mechanism.screening import ScreeningMenu, best_double_deviation
from truthfl.mechanism.setting import Clients, Constants, Training
from truthfl.mechanism.solo_curve import SoloCurve
from truthfl.mechanism.spread import confidence_margin, pay_standard_deviation, samples_for_share
from truthfl.mechanism.strategies import Strategies

__all__ = [
    "Audition",
    "AuditionMeasurement",
    "Clients",
    "Constants",
    "Contract",
    "Deviation",
    "Evidence",
    "FlatPay",
    "InfeasibleError",
    "InputError",
    "LeaveOneOutPay",
    "LinearPay",
    "LossModel",
    "Mechanism",
    "Observation",
    "PayPerClaimedSample",
    "PlanInputs",
    "ScreeningMenu",
    "ServiceError",
    "Shapley",
    "ShapleySharePay",
    "SoloCurve",
    "Strategies",
    "Training",
    "TruthflError",
    "best_choice",
    "best_deviation",
    "best_double_deviation",
    "client_payoff",
    "confidence_margin",
    "feature_norm_bound",
    "find_mechanism",
    "flat_pay",
    "free_riding_gain",
    "is_individually_rational",
    "is_truthful",
    "labeling_floor",
    "lceme",
    "leave_one_out_drops",
    "leave_one_out_pay",
    "linear_regression_label_shift",
    "mechanism_kinds",
    "model_coalition_loss",
    "observe",
    "optimal_batch_sizes",
    "paper_bound",
    "pay_on_model",
    "pay_per_claimed_sample",
    "pay_standard_deviation",
    "peer_shifts",
    "plan_audition",
    "register",
    "samples_for_share",
    "server_payoff",
    "shapley_drops",
    "shapley_share_pay",
    "softmax_label_shift",
    "sound_bound",
    "unregister",
    "work_cost",
]
