"""What every test shares: no test reaches the hub, and no test fails because the machine is busy."""

import importlib.util
import os
import signal

# Before any test imports huggingface_hub, which reads it once.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# A shell starts its background jobs with Ctrl-C ignored, and so would be the programs that the tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The golden tests run where hypothesis is not installed.
if importlib.util.find_spec("hypothesis"):
    from hypothesis import settings

    settings.register_profile("patient", deadline=None)
    settings.load_profile("patient")
