"""What this process has asked of object stores so far, and whether training waits for it.

**Is my GPU starving?** ``seconds_waited`` is the time for which a consumer of this process
(a training loop without workers, a DataLoader worker) had no data to work on::

    before, began = metrics.snapshot(), time.monotonic()
    train_one_epoch()
    waited = metrics.snapshot().seconds_waited - before.seconds_waited
    print(f"waited for data {waited / (time.monotonic() - began):.0%} of the time")

More than a few percent: reading is what limits. Look at ``throttles`` (the service asks for
less: spread the keys, or ask for a higher quota), at ``retries``, and at the mean time to first
byte, ``first_byte_seconds / answers``: where it is high and neither of the others is, a higher
``TransferOptions.max_in_flight`` helps. About nothing, and the GPU still idles: ``transform``
is what limits, so use more workers.

**Workers count for themselves.** Each process of a DataLoader has its own totals, which begin
at zero when it starts; ``snapshot()`` in the training process knows nothing of them. Where
they matter, let each worker write its own into a row of a shared tensor, with this function at
the top of a module::

    def share_waiting(totals, worker):
        def write(name, amount):
            if name == "seconds_waited":
                totals[worker] = metrics.snapshot().seconds_waited
        metrics.on_count(write)

    totals = torch.zeros(num_workers, dtype=torch.float64).share_memory_()
    loader = DataLoader(
        dataset, num_workers=num_workers, worker_init_fn=functools.partial(share_waiting, totals)
    )

``totals.sum()`` then tells how long the workers waited; compare it with ``num_workers`` times
the time that passed.

**Exporting.** ``on_count(hook)`` calls ``hook(name, amount)`` for everything counted, and
returns what unsubscribes it. For OpenTelemetry::

    counters = {
        field.name: meter.create_counter(f"connector.{field.name}")
        for field in dataclasses.fields(metrics.Counts)
    }
    metrics.on_count(lambda name, amount: counters[name].add(amount))

A logger that is called at every step needs no hook:
``wandb.log(dataclasses.asdict(metrics.snapshot()))``.

**What hangs?** ``in_flight()`` lists the reads of this process that are not finished, longest
waiting first.
"""

from providers.counters import Counts, on_count, snapshot
from providers.watching import InFlight, in_flight

__all__ = ["Counts", "InFlight", "in_flight", "on_count", "snapshot"]
