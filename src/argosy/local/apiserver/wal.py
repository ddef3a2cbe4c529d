"""The write-ahead log: every version of every object is a row that is durable before clients see it.

One table has the objects and their history: the newest row of an object, unless it is a deletion, is its
current version. A row is dropped when it is neither current nor in the history. Rows include labels and
selectable fields, so that loading does not parse objects. `commit` writes any number of rows in one durable
transaction (WAL, synchronous=FULL), with few statements of many rows, because the writing thread needs the
interpreter's lock for each statement.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

_ROWS_AT_ONCE = 64

_SCHEMA = """
CREATE TABLE IF NOT EXISTS log (
    rv INTEGER PRIMARY KEY, collection TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    type TEXT NOT NULL, at REAL NOT NULL, selectable BLOB NOT NULL, previous BLOB, data BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS marks (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""


class Row(NamedTuple):
    rv: int
    collection: str
    namespace: str
    name: str
    type: str
    at: float
    selectable: bytes
    previous: bytes | None
    data: bytes


class Log:
    """An SQLite file. One thread opens and reads it; then another one commits to it."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._connection.execute("PRAGMA locking_mode=EXCLUSIVE")  # a second server must not open it
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.executescript(_SCHEMA)

    def rows(self) -> Iterator[Row]:
        """Return all rows, oldest first."""
        return map(Row._make, self._connection.execute("SELECT * FROM log ORDER BY rv"))

    def mark(self, name: str) -> int:
        row = self._connection.execute("SELECT value FROM marks WHERE name = ?", (name,)).fetchone()
        return int(row[0]) if row else 0

    def commit(self, rows: Sequence[Row], dropped: Sequence[int], marks: Sequence[tuple[str, int]]) -> None:
        """Insert rows and delete the dropped ones in one durable transaction."""
        if len(rows) <= _ROWS_AT_ONCE and not dropped and not marks:
            self._insert(rows)  # a single statement is a transaction
            return
        execute, many = self._connection.execute, self._connection.executemany
        execute("BEGIN IMMEDIATE")
        try:
            for start in range(0, len(rows), _ROWS_AT_ONCE):
                self._insert(rows[start : start + _ROWS_AT_ONCE])
            many("DELETE FROM log WHERE rv = ?", [(rv,) for rv in dropped])
            many(
                "INSERT INTO marks VALUES (?,?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                marks,
            )
            execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                execute("ROLLBACK")
            raise

    def _insert(self, rows: Sequence[Row]) -> None:
        values = ",".join(["(?,?,?,?,?,?,?,?,?)"] * len(rows))
        self._connection.execute(
            f"INSERT INTO log VALUES {values}",  # noqa: S608 - made of question marks
            list(chain.from_iterable(rows)),
        )

    def close(self) -> None:
        self._connection.close()
