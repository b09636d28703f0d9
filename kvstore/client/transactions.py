"""The builder of transactions: conditions, what to do if they hold, and what else."""

from __future__ import annotations

from kvstore.client.requests import Merge, text_or_base64


class Txn:
    """Several operations at one place in the order. Each method adds to the transaction and returns it:

        Txn().if_value("seats", "3").increment("seats", -1).put("seat/3", "Ada")

    A transaction without an `otherwise` whose conditions do not hold raises `ConditionFailed`."""

    def __init__(self, merge: Merge | None = None) -> None:
        self._conditions: list[dict[str, object]] = []
        self._then: list[dict[str, object]] = []
        self._else: Txn | None = None
        self._merge = merge

    # Conditions: all of them must hold

    def if_revision(self, key: str, revision: int) -> Txn:
        """0: the key does not exist."""
        return self._when(key, revision=revision)

    def if_exists(self, key: str) -> Txn:
        return self._when(key, exists=True)

    def if_absent(self, key: str) -> Txn:
        return self._when(key, exists=False)

    def if_value(self, key: str, value: bytes | str) -> Txn:
        return self._when(key, value=text_or_base64(value))

    def if_written_by(self, key: str, write_id: str) -> Txn:
        """For a value that is not green yet: its ETag is the id of its write."""
        return self._when(key, id=write_id)

    # Operations, in this order

    def put(self, key: str, value: bytes | str, content_type: str | None = None) -> Txn:
        usual = "text/plain; charset=utf-8" if isinstance(value, str) else "application/octet-stream"
        return self._do("put", key, value=text_or_base64(value), content_type=content_type or usual)

    def delete(self, key: str) -> Txn:
        return self._do("delete", key)

    def increment(self, key: str, by: int = 1) -> Txn:
        return self._do("increment", key, by=by)

    def append(self, key: str, value: bytes | str) -> Txn:
        return self._do("append", key, value=text_or_base64(value))

    def get(self, key: str) -> Txn:
        return self._do("get", key)

    def otherwise(self, operations: Txn) -> Txn:
        """What to do if a condition does not hold: the operations of another `Txn`, which has no conditions."""
        if operations._conditions or operations._else is not None:
            raise ValueError("what happens otherwise has no conditions of its own")
        self._else = operations
        return self

    def content(self) -> dict[str, object]:
        """Returns the transaction as the API takes it."""
        found: dict[str, object] = {"then": self._then}
        if self._conditions:
            found["if"] = self._conditions
        if self._else is not None:
            found["else"] = self._else._then
        if self._merge is not None:
            found["merge"] = self._merge
        return found

    def _when(self, key: str, **what: object) -> Txn:
        self._conditions.append({"key": key, **what})
        return self

    def _do(self, operation: str, key: str, **what: object) -> Txn:
        self._then.append({operation: {"key": key, **what}})
        return self
