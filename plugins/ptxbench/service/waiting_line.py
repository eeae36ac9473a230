"""Who is served next: interactive before bulk, and the clients of one priority in turn."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, Literal, TypeVar

Item = TypeVar("Item")
PRIORITIES: tuple[Literal["interactive"], Literal["bulk"]] = ("interactive", "bulk")


class WaitingLine(Generic[Item]):
    """A queue with a line for each client. Not safe for threads: it belongs to the event loop."""

    def __init__(self) -> None:
        self._lines: dict[str, OrderedDict[str, deque[Item]]] = {priority: OrderedDict() for priority in PRIORITIES}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def put(self, item: Item, client: str, priority: str) -> None:
        """Behind everything that this client has waiting with this priority."""
        self._lines[priority].setdefault(client, deque()).append(item)
        self._length += 1

    def put_back(self, item: Item, client: str, priority: str) -> None:
        """Before everything else of its client: it was taken once, and whoever took it died."""
        line = self._lines[priority]
        line.setdefault(client, deque()).appendleft(item)
        line.move_to_end(client, last=False)
        self._length += 1

    def take(self) -> Item | None:
        """The next item; its client is then behind all others of the priority. None: nothing waits."""
        for priority in PRIORITIES:
            line = self._lines[priority]
            if line:
                client, items = next(iter(line.items()))
                item = items.popleft()
                if items:
                    line.move_to_end(client)
                else:
                    del line[client]
                self._length -= 1
                return item
        return None

    def lengths(self) -> dict[str, int]:
        """How many wait, by priority."""
        return {priority: sum(map(len, line.values())) for priority, line in self._lines.items()}
