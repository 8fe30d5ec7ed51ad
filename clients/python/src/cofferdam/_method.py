"""One method of the API, as the transports call it."""

from typing import Generic, TypeVar

from google.protobuf.message import Message

from cofferdam._node import node_for

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


class Method(Generic[Request, Response]):
    """Its path, its request and its response.

    `repeatable`: the proto file gives it an `idempotency_level`. Others are repeated only if the request
    has a `request_id`.
    """

    __slots__ = ("path", "repeatable", "request", "response")

    def __init__(self, path: str, request: type[Request], response: type[Response], repeatable: bool) -> None:
        self.path = path
        self.request = request
        self.response = response
        self.repeatable = repeatable

    def may_repeat(self, request: Request, *, is_in_fleet: bool) -> bool:
        """Whether nothing happens twice if a request is sent again whose answer was lost.

        Only the node that took a request knows its `request_id`. In a fleet a request that names no node may reach another.
        """
        if self.repeatable or not getattr(request, "request_id", ""):
            return self.repeatable
        return not is_in_fleet or node_for(request) is not None
