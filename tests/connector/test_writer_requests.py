"""What a writer asks of real servers, and what it does not."""

from __future__ import annotations

import io
import itertools
import threading
import urllib.parse
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from connector.writer import ObjectWriter
from providers.retry import without_waiting
from tests.fakes.front import Front, Record, Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.connector.store import Store

_PATIENCE_SECONDS = 60.0


def _part_number(request: Request | Record) -> int:
    """Return which part a request sends; 0: none."""
    return int(dict(urllib.parse.parse_qsl(request.query)).get("partNumber", 0))


def _is_part(number: int) -> Callable[[Request], bool]:
    return lambda request: _part_number(request) == number


def test_a_small_object_costs_one_request(cloud_store: Store) -> None:
    """A kilobyte takes one request, whatever came before."""
    with Front(cloud_store.endpoint) as front:
        provider = cloud_store.at(front.endpoint).provider()
        for name in ("one", "two"):
            before = len(front.requests)
            with ObjectWriter(provider, name) as file:
                file.write(bytes(1024))
            assert len(front.requests) == before + 1


def test_only_the_part_that_failed_is_sent_again(cloud_store: Store) -> None:
    """Of four parts the second is refused twice: it is sent three times, the others once."""
    data = np.random.default_rng(3).bytes(3 * cloud_store.part_bytes + 9)
    with Front(cloud_store.endpoint) as front, without_waiting():
        front.answer(503, when=_is_part(2))
        front.reset(when=_is_part(2))
        with ObjectWriter(cloud_store.at(front.endpoint).provider(), "k") as file:
            file.write(data)
        numbers = [number for record in front.requests if (number := _part_number(record))]
    assert sorted(numbers) == [1, 2, 2, 2, 3, 4]
    assert cloud_store.raw_get("k") == data


@pytest.mark.parametrize("order", list(itertools.permutations((1, 2, 3))), ids=str)
def test_parts_may_arrive_in_any_order(cloud_store: Store, order: tuple[int, ...]) -> None:
    """Whichever part arrives first or last, the object is the same."""
    data = np.random.default_rng(4).bytes(2 * cloud_store.part_bytes + 9)
    arrived = {number: threading.Event() for number in (0, 1, 2, 3)}
    arrived[0].set()
    before = dict(zip(order, (0, *order), strict=False))
    with Front(cloud_store.endpoint) as front:
        for number in order:

            def in_turn(exchange: Any, number: int = number) -> Any:
                assert arrived[before[number]].wait(_PATIENCE_SECONDS)
                answer = exchange.forward()
                arrived[number].set()
                return answer

            front.apply(in_turn, when=_is_part(number))
        with ObjectWriter(cloud_store.at(front.endpoint).provider(), "k") as file:
            file.write(data)
    assert cloud_store.raw_get("k") == data


def test_torch_saves_the_same_bytes(store: Store) -> None:
    """What torch.save writes through it is, byte for byte, what it writes into memory."""
    generator = torch.Generator().manual_seed(1)
    weights = torch.rand(store.part_bytes // 2, generator=generator)
    state = {
        "weights": weights,
        "view": weights[3:9],
        "half": weights[: store.part_bytes // 8].to(torch.bfloat16),
        "rest": [torch.zeros(0), torch.tensor(3), {"epoch": 7}],
    }
    expected = io.BytesIO()
    torch.save(state, expected)
    with ObjectWriter(store.provider(), store.key("state.pt")) as file:
        torch.save(state, file)
    assert store.raw_get("state.pt") == expected.getvalue()
    assert len(expected.getvalue()) > 2 * store.part_bytes
