"""Alibaba OSS against the suite, on a server that checks signatures and sizes itself."""

from __future__ import annotations

from providers.testing import ProviderSuite
from providers.testing.listing import ListTests
from providers.testing.multiparts import MultipartTests
from providers.testing.odd_keys import OddKeyTests
from providers.testing.reading import GetTests, HeadTests
from providers.testing.writing import CopyTests, DeleteTests, PutTests
from tests.providers.oss.stores import OSSHarness


class TestOSS(OSSHarness, ProviderSuite):
    """The whole suite, signed with V4."""


class TestOSSWithV1(
    OSSHarness,
    GetTests,
    HeadTests,
    ListTests,
    PutTests,
    CopyTests,
    DeleteTests,
    MultipartTests,
    OddKeyTests,
):
    """Every request there is, signed with V1 as old private deployments want it."""

    signature_version = "v1"
    many_objects = 3
