"""Signs what schemathesis sends, lets it find what exists, and notes which operations were carried out."""

import atexit
import base64
import hashlib
import hmac
import itertools
import json
import os
import time
import urllib.request
from collections import defaultdict
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import requests
import schemathesis

BASE = os.environ["TIDEMARK_URL"]
MERCHANT = os.environ["TIDEMARK_MERCHANT_SECRET"].encode()
OPERATOR = os.environ["TIDEMARK_ADMIN_SECRET"]


def mac(text: bytes) -> bytes:
    return hmac.new(MERCHANT, text, hashlib.sha256).digest()


def signature(body: bytes) -> str:
    now = str(int(time.time()))
    return f"{now}.{base64.b64encode(mac(now.encode() + b'.' + body)).decode()}"


class Authority(requests.auth.AuthBase):
    def __call__(self, request):
        path = urlsplit(request.url).path
        if path.startswith("/api/v1/service"):
            body = request.body or b""
            body = body.encode() if isinstance(body, str) else body
            request.headers["Service-Signature"] = signature(body)
        elif path.startswith("/api/v1/admin") or path == "/health":
            request.headers["Service-Admin-Authorization"] = OPERATOR
        elif path.startswith("/api/v1/user/orders/"):
            order_id, end = path.split("/")[5], int(time.time()) + 3600
            sig = base64.urlsafe_b64encode(mac(f"checkout.v1.{order_id}.{end}".encode()))
            link = {"exp": end, "sig": sig.rstrip(b"=").decode()}
            url = urlsplit(request.url)
            query = [(k, v) for k, v in parse_qsl(url.query, keep_blank_values=True) if k not in link]
            request.url = urlunsplit(url._replace(query=urlencode(query + list(link.items()))))
        return request


schemathesis.auth.set_from_requests(Authority())


def existing() -> str:
    body = json.dumps({"order_id": "S-1", "amount": "5.00", "webhook_url": "https://shop.example/hooks"}).encode()
    request = urllib.request.Request(f"{BASE}/api/v1/service/orders", body, {"Service-Signature": signature(body)})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["order_id"]


ORDER = existing()
# What exists beside it, by the name of the path's part.
KNOWN = {
    "transfer_id": int(os.environ["TIDEMARK_TRANSFER"]),
    "address": os.environ["TIDEMARK_WALLET"],
    "hash": os.environ["TIDEMARK_TRANSACTION"],
}
# One that is attached is no longer unknown, as the other operations need it.
TO_ATTACH = int(os.environ["TIDEMARK_TRANSFER_TO_ATTACH"])
# Whether the next valid case of an operation is about something that exists: every second one is.
TURNS = defaultdict(lambda: itertools.cycle([True, False]))
# The operations that were carried out.
DONE = set()


def own_order(case) -> str:
    """A command ends its order, so each has one of its own."""
    return existing() if case.method == "POST" else ORDER


@schemathesis.hook
def before_call(context, case, kwargs):
    parts = case.path_parameters or {}
    if "order_id" in parts and case.path.startswith("/api/v1/user"):
        parts["order_id"] = ORDER
        return
    is_attach = case.path.endswith("/attach")
    # Also one that was generated may be the one that must stay.
    if is_attach and str(parts["transfer_id"]) == str(KNOWN["transfer_id"]):
        parts["transfer_id"] = TO_ATTACH
    # What is wrong on purpose stays so.
    if case.meta is not None and not case.meta.generation.mode.is_positive:
        return
    # In a new order it is the merchant's own word.
    has_order = "order_id" in case.body if isinstance(case.body, dict) else False
    has_order = has_order and case.path != "/api/v1/service/orders"
    if not (parts or has_order) or not next(TURNS[case.operation.label]):
        return
    if has_order:
        case.body["order_id"] = own_order(case)
    for name in parts:
        parts[name] = own_order(case) if name == "order_id" else KNOWN[name]
    if is_attach:
        parts["transfer_id"] = TO_ATTACH


@schemathesis.hook
def after_call(context, case, response):
    if response.status_code < 400:
        DONE.add(case.operation.label)


@atexit.register
def report():
    with open(os.environ["TIDEMARK_DONE"], "w") as file:
        file.write("\n".join(sorted(DONE)))
