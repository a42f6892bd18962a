"""Settings of the training: both views, with hard negatives; the model that it starts from keeps its terms English."""

from milco_pyserini.options import replace_options
from milco_pyserini.train.config import START
from milco_pyserini.train.presets import MINI_SCT

ADAPT = replace_options(
    MINI_SCT,
    preset="adapt",
    views=("pivot", "source"),
    teacher=START,
    within_limits=True,
    group_size=2,
    lambda_query=1e-3,
    lambda_passage=1e-3,
    score_temperature=1.0,
    steps=600,
    learning_rate=3e-5,
    part_rates=(
        *(rate for rate in MINI_SCT.optimizer.part_rates if rate.endswith("=0") and rate != "echo=0"),
        *("connector.projector=3e-5", "connector.dense=5e-6", "connector.layer_norm=5e-5", "decoder=1e-4"),
    ),
    save_steps=100,
    keep=1,
)
