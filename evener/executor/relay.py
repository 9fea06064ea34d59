"""Tells every rank what one of them says, over sockets: the middle of ``watch``."""

import selectors
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field

from evener.executor.failure import Place, lost
from evener.executor.launch import LOOPBACK, Rank
from evener.ir.text import parse_action

_ADDRESS_KEY = "evener/relay"
# A machine that loses power closes no socket; these let the kernel notice within 7 s.
_KEEP_ALIVE = (("TCP_KEEPIDLE", 2), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 5))


def write_place(place: Place) -> str:
    """A place as text, without its rank."""
    return f"{place.action or ''} {place.awaited or ''}"


def read_place(rank: int, text: str) -> Place:
    """The inverse of ``write_place``."""
    action, awaited = (parse_action(part) if part else None for part in text.split(" "))
    return Place(rank, action, awaited)


class Lines:
    """A socket on which both sides send lines of a word and a text."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE:
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self.socket = connection
        self._lock = threading.Lock()
        self._rest = b""

    @classmethod
    def connect(cls, rank: Rank) -> "Lines":
        """To the relay of these ranks, as soon as it is there."""
        port = int(rank.store.get(_ADDRESS_KEY))
        return cls(socket.create_connection((rank.address, port), timeout=60))

    def send(self, word: str, text: str = "") -> None:
        """Send, or do nothing if the other side has gone: ``receive`` says so."""
        line = f"{word} {text}".replace("\n", "\\n")
        with self._lock, suppress(OSError):
            self.socket.sendall(f"{line}\n".encode())

    def receive(self, timeout_s: float) -> list[tuple[str, str]]:
        """What has come, ending with ("closed", "") if the other side has gone."""
        self.socket.settimeout(timeout_s)
        try:
            data = self.socket.recv(1 << 16)
        except TimeoutError:
            return []
        except OSError:
            data = b""
        *lines, self._rest = (self._rest + data).split(b"\n")
        said = [line.decode().partition(" ") for line in lines]
        found = [(word, text.replace("\\n", "\n")) for word, _, text in said]
        return found if data else [*found, ("closed", "")]

    def close(self) -> None:
        self.socket.close()


class Relay:
    """Runs in a thread of rank 0. The first end by force is told to all; "done" when all are."""

    def __init__(self, rank: Rank) -> None:
        self._num_ranks = rank.num_ranks
        host = LOOPBACK if rank.address in (LOOPBACK, "localhost") else ""
        self._listener = socket.create_server((host, 0), backlog=rank.num_ranks)
        rank.store.set(_ADDRESS_KEY, str(self._listener.getsockname()[1]))
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._members: list[_Member] = []
        self._failure: tuple[str, str] | None = None

    def start(self) -> None:
        threading.Thread(target=self._run, name="relay", daemon=True).start()

    def _run(self) -> None:
        while sum(member.is_done for member in self._members) < self._num_ranks:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    self._welcome(self._listener.accept()[0])
                else:
                    self._read(key.data)
        self._tell_all("done")
        for member in self._members:
            member.lines.close()
        self._listener.close()

    def _welcome(self, connection: socket.socket) -> None:
        member = _Member(Lines(connection))
        self._members.append(member)
        self._selector.register(connection, selectors.EVENT_READ, member)
        if self._failure is not None:
            member.lines.send(*self._failure)

    def _read(self, member: "_Member") -> None:
        for word, text in member.lines.receive(0.0):
            if word == "rank":
                member.place = Place(int(text))
            elif word == "place":
                member.place = read_place(member.place.rank, text)
                if member.place.rank == 0:
                    self._tell_all("place", text)
            elif word == "done":
                member.is_done = True
            elif word in ("failure", "interrupted"):
                self._fail(word, text)
            else:
                assert word == "closed", word
                self._selector.unregister(member.lines.socket)
                if not member.is_done:
                    self._fail("failure", lost(member.place).header)

    def _fail(self, word: str, text: str) -> None:
        if self._failure is None:
            self._failure = word, text
            self._tell_all(word, text)

    def _tell_all(self, word: str, text: str = "") -> None:
        # Rank 0 last: hearing of it may end the process in which this runs.
        for member in sorted(self._members, key=lambda member: member.place.rank, reverse=True):
            member.lines.send(word, text)


@dataclass
class _Member:
    """One rank: its socket and where it was last. The rank is -1 until it has said it."""

    lines: Lines
    place: Place = field(default_factory=lambda: Place(-1))
    is_done: bool = False
