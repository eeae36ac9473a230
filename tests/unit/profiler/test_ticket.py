import threading

import pytest

from ptxbench.profiler.ticket import Ticket, current_ticket, ticket


def test_without_a_ticket_somebody_waits():
    assert current_ticket() == Ticket(client="", priority="interactive")


def test_a_ticket_holds_within_and_ends_with_an_error():
    def fail() -> None:
        with ticket("fleet", "bulk"):
            with ticket("person"):
                assert current_ticket() == Ticket("person", "interactive")
            assert current_ticket() == Ticket("fleet", "bulk")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert current_ticket() == Ticket()


def test_another_thread_has_its_own():
    seen = []
    with ticket("fleet"):
        thread = threading.Thread(target=lambda: seen.append(current_ticket()))
        thread.start()
        thread.join()
    assert seen == [Ticket()]
