"""Whether what a step reads can be had: asked before the work begins, and once in a run of the command."""

import time

from milco_pyserini.errors import MilcoError, Unreachable
from milco_pyserini.reproduce.roads import ANSWERS, CORPUS, ENCODER, QRELS, TOPICS, Need

# The hub's library tries for half a minute. What it could not reach is asked for again after this long: a long run
# should not give up all that follows for a network that was away for a moment.
_PATIENCE = 600.0


class Reach:
    """Asks, and remembers the answers. The time of the last attempt without a network too, so as not to wait again."""

    def __init__(self) -> None:
        self._known: dict[Need, str | None] = {}
        self._offline_until = 0.0

    def why_not(self, need: Need) -> str | None:
        """Why something cannot be had, in one line; None if it can. It may be fetched by this."""
        if need not in self._known:
            self._known[need] = self._ask(need)
        return self._known[need]

    def _ask(self, need: Need) -> str | None:
        from huggingface_hub import constants

        before = constants.HF_HUB_OFFLINE
        # The library's own switch: what it has stored is still found.
        constants.HF_HUB_OFFLINE = before or time.monotonic() < self._offline_until
        try:
            _open(need)
        except (MilcoError, OSError) as error:
            if isinstance(error, Unreachable):
                self._offline_until = time.monotonic() + _PATIENCE
            return " ".join(str(error).split())
        finally:
            constants.HF_HUB_OFFLINE = before
        return None


def _open(need: Need) -> None:
    """Read as much as tells that it is there. Raises MilcoError, or OSError, if it is not."""
    from milco_pyserini import corpora
    from milco_pyserini.model.checkpoint import find_checkpoint

    if need.kind == CORPUS:
        next(iter(corpora.open_corpus(need.name)), None)
    elif need.kind == TOPICS:
        next(iter(corpora.open_topics(need.name)), None)
    elif need.kind == QRELS:
        corpora.open_qrels(need.name)
    elif need.kind == ANSWERS:
        corpora.open_answers(need.name)
    elif need.kind == ENCODER:
        find_checkpoint(need.name)
