"""Public names of `truthfl`: contracts and errors."""

from truthfl.contracts.audition.level import SoloCurve
from truthfl.contracts.audition.pay import Audition
from truthfl.contracts.audition.plan import AuditionInputs, AuditionMeasurement, best_choice, plan_audition
from truthfl.contracts.baselines import (
    FlatPay,
    LeaveOneOutPay,
    PayPerClaimedSample,
    Shapley,
    ShapleySharePay,
    flat_pay,
    leave_one_out_drops,
    leave_one_out_pay,
    model_coalition_loss,
    observe,
    pay_per_claimed_sample,
    shapley_drops,
    shapley_share_pay,
)
from truthfl.contracts.contract import Contract, Contribution, Evidence, LinearPay, Observation, PlanInputs, Prices
from truthfl.contracts.deviation import (
    Deviation,
    best_deviation,
    free_riding_gain,
    is_individually_rational,
    is_truthful,
)
from truthfl.contracts.lceme.assignment import labeling_floor, optimal_batch_sizes
from truthfl.contracts.lceme.contract import LCEME, lceme
from truthfl.contracts.lceme.private_costs import ScreeningMenu, best_double_deviation
from truthfl.contracts.loss_model import (
    LossModel,
    feature_norm_bound,
    linear_regression_label_shift,
    paper_bound,
    softmax_label_shift,
    sound_bound,
)
from truthfl.contracts.payoff import (
    client_payoff,
    confidence_margin,
    pay_on_model,
    pay_standard_deviation,
    samples_for_share,
    server_payoff,
    work_cost,
)
from truthfl.contracts.registry import contract_kinds, find_contract, register, unregister
from truthfl.contracts.setting import Clients, Constants, Strategies, Training
from truthfl.contracts.solo import SoloResult, peer_shifts
from truthfl.errors import InfeasibleError, InputError, ServiceError, TruthflError

__all__ = [  # noqa: RUF022  (LCEME is a class, no constant)
    "Audition",
    "AuditionInputs",
    "AuditionMeasurement",
    "Clients",
    "Constants",
    "Contract",
    "Contribution",
    "Deviation",
    "Evidence",
    "FlatPay",
    "InfeasibleError",
    "InputError",
    "LCEME",
    "LeaveOneOutPay",
    "LinearPay",
    "LossModel",
    "Observation",
    "PayPerClaimedSample",
    "PlanInputs",
    "Prices",
    "ScreeningMenu",
    "ServiceError",
    "Shapley",
    "ShapleySharePay",
    "SoloCurve",
    "SoloResult",
    "Strategies",
    "Training",
    "TruthflError",
    "best_choice",
    "best_deviation",
    "best_double_deviation",
    "client_payoff",
    "confidence_margin",
    "contract_kinds",
    "feature_norm_bound",
    "find_contract",
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
