"""The conformance suite of the provider contract, for this package's backends and for yours.

Needs pytest and hypothesis, and nothing else in ``providers`` does. Subclass
``ProviderSuite``; ``LatencyProvider`` and ``FaultyProvider`` serve tests of what is built on
a provider.
"""

import pytest

pytest.register_assert_rewrite(
    *(
        f"{__name__}.{module}"
        for module in (
            "composing",
            "failing",
            "listing",
            "machine",
            "multiparts",
            "odd_keys",
            "processes",
            "reading",
            "unfinished",
            "writing",
        )
    )
)

from providers.testing.harness import Harness  # noqa: E402 asserts are rewritten on import
from providers.testing.machine import ProviderMachine  # noqa: E402
from providers.testing.odd_keys import ODD_KEYS  # noqa: E402
from providers.testing.suite import ProviderSuite  # noqa: E402
from providers.testing.wrappers import (  # noqa: E402
    Call,
    Fault,
    FaultyProvider,
    LatencyProvider,
    WrappingProvider,
)

__all__ = [
    "ODD_KEYS",
    "Call",
    "Fault",
    "FaultyProvider",
    "Harness",
    "LatencyProvider",
    "ProviderMachine",
    "ProviderSuite",
    "WrappingProvider",
]
