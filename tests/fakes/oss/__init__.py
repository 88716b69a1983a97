"""A small, strict Alibaba OSS on loopback, for tests.

It checks signatures, addressing, part sizes, conditions and digests itself, from the service's
documentation, so that a client cannot pass by being wrong in the way the server is.
"""

from tests.fakes.oss.messages import RequestRecord
from tests.fakes.oss.server import OSSServer
from tests.fakes.oss.state import ServiceLimits

__all__ = ["OSSServer", "RequestRecord", "ServiceLimits"]
