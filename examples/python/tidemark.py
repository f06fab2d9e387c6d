"""Signatures of Tidemark: what a merchant's backend makes and verifies. Python 3.9, no packages.

MERCHANT_SECRET=… python3 tidemark.py sign 1790000000 '{"order_id":"A-1"}'
MERCHANT_SECRET=… python3 tidemark.py verify 1790000000 '<Service-Signature>' '<body>'
MERCHANT_SECRET=… python3 tidemark.py link <order_id> 1790000000
MERCHANT_SECRET=… python3 tidemark.py proof <order_id> paid '<proof>'
"""

import base64
import hashlib
import hmac
import os
import sys
from typing import Optional


def _mac(secret: bytes, text: bytes) -> bytes:
    return hmac.new(secret, text, hashlib.sha256).digest()


def sign_request(secret: bytes, timestamp: int, body: bytes) -> str:
    """The Service-Signature of a request; timestamp is the present Unix time."""
    mac = _mac(secret, f"{timestamp}.".encode() + body)
    return f"{timestamp}.{base64.b64encode(mac).decode()}"


def is_genuine(secret: bytes, now: int, header: Optional[str], body: bytes) -> bool:
    """Whether a webhook is Tidemark's. The body is the bytes as they came, before any JSON parser."""
    timestamp = (header or "").partition(".")[0]
    if not (timestamp.isascii() and timestamp.isdecimal() and len(timestamp) <= 12):
        return False
    if abs(now - int(timestamp)) > 300:
        return False
    wanted = sign_request(secret, int(timestamp), body)
    return hmac.compare_digest(wanted.encode(), header.encode())


def checkout_query(secret: bytes, order_id: str, exp: int) -> str:
    """The query of the checkout link of one order, which holds until the Unix time exp."""
    mac = _mac(secret, f"checkout.v1.{order_id}.{exp}".encode())
    return f"exp={exp}&sig={base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def is_proof(secret: bytes, order_id: str, status: str, proof: Optional[str]) -> bool:
    """Whether {proof} of merchant.return_url shows that the order had this status, at the Unix time before its point."""
    time = (proof or "").partition(".")[0]
    if not (time.isascii() and time.isdecimal() and len(time) <= 12):
        return False
    mac = _mac(secret, f"return.v1.{order_id}.{status}.{time}".encode())
    wanted = f"{time}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"
    return hmac.compare_digest(wanted.encode(), proof.encode())


if __name__ == "__main__":
    key = os.environ["MERCHANT_SECRET"].encode()
    command, first, *rest = sys.argv[1:]
    if command == "sign":
        print(sign_request(key, int(first), rest[0].encode()))
    elif command == "verify":
        print("genuine" if is_genuine(key, int(first), rest[0], rest[1].encode()) else "refused")
    elif command == "link":
        print(checkout_query(key, first, int(rest[0])))
    elif command == "proof":
        print("genuine" if is_proof(key, first, rest[0], rest[1]) else "refused")
