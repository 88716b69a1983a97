"""All groups of tests in one base class."""

from __future__ import annotations

from providers.testing.composing import ComposeTests
from providers.testing.failing import ErrorTests
from providers.testing.listing import ListTests
from providers.testing.machine import ModelTests
from providers.testing.multiparts import MultipartTests
from providers.testing.odd_keys import OddKeyTests
from providers.testing.processes import ProcessTests
from providers.testing.reading import GetTests, HeadTests
from providers.testing.unfinished import UnfinishedTests
from providers.testing.writing import CopyTests, DeleteTests, PutTests

__all__ = ["ProviderSuite"]


class ProviderSuite(
    GetTests,
    HeadTests,
    ListTests,
    PutTests,
    CopyTests,
    DeleteTests,
    MultipartTests,
    UnfinishedTests,
    ComposeTests,
    OddKeyTests,
    ProcessTests,
    ErrorTests,
    ModelTests,
):
    """Every promise of the provider contract, as tests.

    Subclass it in a test module, under a name that pytest collects, and supply what
    ``Harness`` asks for. A server per session and a bucket per test come in by an autouse
    fixture of the subclass::

        class TestMyProvider(ProviderSuite):
            @pytest.fixture(autouse=True)
            def _bucket(self, my_server, my_bucket):
                self.server, self.bucket = my_server, my_bucket

            def make_provider(self):
                return MyProvider(self.bucket, MyOptions(endpoint=self.server.endpoint))

            def raw_put(self, key, data, metadata=None): ...
            def raw_get(self, key): ...
            def raw_keys(self): ...
            def raw_unfinished_uploads(self): ...
            def make_missing_bucket_provider(self): ...
            def make_denied_provider(self): ...
    """
