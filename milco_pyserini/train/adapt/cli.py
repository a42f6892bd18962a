"""milco adapt: a model for one's own documents in one command."""

from functools import partial

from milco_pyserini.cli.parser import run_command
from milco_pyserini.train.adapt.options import AdaptOptions
from milco_pyserini.train.cli import validate_installation


def adapt_command(options: AdaptOptions) -> None:
    """Run milco adapt."""
    validate_installation()
    from milco_pyserini.train.adapt.run import adapt

    adapt(options)


main = partial(run_command, "milco adapt", AdaptOptions, adapt_command, interrupted="the same command resumes")
