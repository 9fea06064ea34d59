"""Our JSON files: what is wrong with one before its contents can be looked at."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from evener.errors import EvenerError, Violation
from evener.units import too_many_digits

# Per kind of file, a key that no other kind has.
_MARKS = {"plan": "partition", "profile": "layers", "timeline": "start_ns"}


@dataclass(frozen=True)
class JsonFile:
    """A kind of JSON file, and the error that a broken one raises.

    what: the kind, one of ``_MARKS``. version: the only one that is read.
    error_type: of a broken one. way_out: how to get another.
    """

    what: str
    version: int
    error_type: type[EvenerError]
    way_out: str

    def read(self, path: Path | str) -> str:
        """The text of a file. Raises ``error_type`` with the reason why it cannot be read."""
        try:
            return Path(path).read_text("utf-8-sig")
        except OSError as error:
            self._refuse(path, f"cannot be read: {error.strerror}; {self.way_out}")
        except UnicodeDecodeError as error:
            what = f"is not UTF-8 text: {error.reason} at byte {error.start}; {self.way_out}"
            self._refuse(path, what)

    def parse(self, text: str, file: Path | str) -> dict[str, Any]:
        """The keys and values. Raises ``error_type`` with the reason why there are none."""
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            what = f"not JSON at column {error.colno}: {error.msg}; {self.way_out}"
            self._refuse(file, what, line=error.lineno)
        except ValueError:  # Python reads no number of thousands of digits
            self._refuse(file, f"{too_many_digits(text)}; {self.way_out}")
        except RecursionError:
            self._refuse(file, f"is nested too deeply; {self.way_out}")
        if not isinstance(values, dict):
            self._refuse(file, f"is a {type(values).__name__}, not an object; {self.way_out}")
        other = next((what for what, key in _MARKS.items() if key in values), self.what)
        if _MARKS[self.what] not in values and other != self.what:
            self._refuse(file, f"is a {other}; {self.way_out}")
        version = values.get("version")
        if version != self.version or isinstance(version, bool):
            found = "is missing" if version is None else f"is {json.dumps(version)}"
            what = f"{found}, but this Evener reads version {self.version}; {self.way_out}"
            self._refuse(file, what, key="version")
        return values

    def header(self, file: Path | str) -> str:
        return f"{file} is not a {self.what} that can be used:"

    def _refuse(
        self, file: Path | str, text: str, *, line: int | None = None, key: str | None = None
    ) -> NoReturn:
        violation = Violation(text, file=str(file), line=line, key=key)
        raise self.error_type(self.header(file), [str(violation)]) from None
