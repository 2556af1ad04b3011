"""Messages from rank to rank; the others have nothing to do with them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ._coll_calls import Calls


class _Message(NamedTuple):
    """From rank to rank."""

    is_sent: bool
    array: Any
    rank: int  # the other one
    name: str  # of the argument


class Messages(Calls):
    def send(self, data: Any, to: int, *, stream: Any = None) -> None:
        """To rank ``to``, which receives as many bytes; messages of two ranks match in the order in
        which each of them makes the calls. Ranks that send to each other, or in a circle, do it by
        ``exchange``: here each would wait for the other."""
        call = "send"
        rank = self._other(call, to, "to")
        self._exchange(call, [_Message(True, data, rank, "data")], stream)

    def receive(self, out: Any, source: int, *, stream: Any = None) -> Any:
        """What rank ``source`` sends, in ``out``."""
        call = "receive"
        rank = self._other(call, source, "source")
        return self._exchange(call, [_Message(False, out, rank, "out")], stream)[0]

    def exchange(
        self,
        sends: Iterable[tuple[Any, int]] = (),
        receives: Iterable[tuple[Any, int]] = (),
        *,
        stream: Any = None,
    ) -> list[Any]:
        """Messages that are under way at once: arrays, each with the rank it goes to or comes from.
        They match those of ``send`` and ``receive``, too, for each pair of ranks in the order given.
        Returns the arrays that were received."""
        call = "exchange"
        messages = self._pairs(call, sends, "sends") + self._pairs(call, receives, "receives")
        return self._exchange(call, messages, stream)

    def _other(self, call: str, rank: int, name: str) -> int:
        self._check_rank(call, rank, name)
        if rank == self.rank:
            raise ValueError(f"{call}: {name} {rank} is this rank itself; copy instead")
        return rank

    def _pairs(self, call: str, pairs: Iterable[tuple[Any, int]], name: str) -> list[_Message]:
        """What is sent, or received, with names for errors."""
        messages = []
        for i, pair in enumerate(pairs):
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise TypeError(f"{call}: {name}[{i}] is no pair of an array and a rank")
            rank = self._other(call, pair[1], f"the rank of {name}[{i}]")
            messages.append(_Message(name == "sends", pair[0], rank, f"{name}[{i}]"))
        return messages

    def _exchange(self, call: str, messages: list[_Message], stream: Any) -> list[Any]:
        """Returns what was received."""
        if not messages:
            return []
        place = self._place(call, stream, messages[0].array)
        arrays = [self._input(call, m.array, place, m.name) for m in messages]
        for i, (m, a) in enumerate(zip(messages, arrays, strict=True)):
            if m.is_sent:
                continue
            if not a.writable:
                raise ValueError(f"{call}: {m.name} cannot be written")
            for other, b in zip(messages[:i], arrays[:i], strict=True):
                if a.overlaps(b):
                    raise ValueError(f"{call}: {m.name} and {other.name} overlap")
        self._native.exchange(
            [
                (m.is_sent, a.address, a.nbytes, m.rank)
                for m, a in zip(messages, arrays, strict=True)
            ],
            place.stream,
        )
        self._queued(place)
        return [m.array for m in messages if not m.is_sent]
