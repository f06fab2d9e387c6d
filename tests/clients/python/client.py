"""Reads every topic and writes transfers.raw with confluent-kafka, as docs/consume shows."""

import datetime
import decimal
import json
import sys

# recipe: read
from confluent_kafka import Consumer, KafkaException
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext


def records(brokers, registry, topics, group, set_aside):
    """Every committed record of some topics with its decoded value, at least once each.

    A record counts as read when the caller asks for the next one: do its work before that.
    The value is None for a tombstone. What does not decode goes to set_aside(message, error)."""
    decode = AvroDeserializer(SchemaRegistryClient({"url": registry}))
    consumer = Consumer({
        "bootstrap.servers": brokers,
        "group.id": group,
        # Without this you see records of steps that were aborted.
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        # With this on, a timer commits what you have not worked off yet, and a crash loses it.
        "enable.auto.commit": False,
    })
    consumer.subscribe(topics)
    try:
        while True:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error():
                raise KafkaException(message.error())
            context = SerializationContext(message.topic(), MessageField.VALUE)
            try:
                value = decode(message.value(), context)  # Amounts are Decimal, times datetime.
            except SchemaRegistryError:
                raise  # The registry is away or older than the record: stop, and read it again later.
            except Exception as error:
                set_aside(message, error)
            else:
                yield message, value
            # One round trip a record; once a hundred or a second is as safe, and repeats more.
            consumer.commit(message, asynchronous=False)
    finally:
        consumer.close()  # Leaves the group now; else its partitions wait for session.timeout.ms.
# end

# recipe: book
import sqlite3


def book_payments(brokers, registry, topic, group, path, set_aside):
    """Books each payment once, however often its record is read: transfer_id is the key."""
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE IF NOT EXISTS payment (transfer_id INTEGER PRIMARY KEY, order_id, value)")
    for _, paid in records(brokers, registry, [topic], group, set_aside):
        with db:
            row = (paid["transfer_id"], paid["order_id"], paid["value_text"])
            db.execute("INSERT OR IGNORE INTO payment VALUES (?, ?, ?)", row)
# end

# recipe: write
import hashlib

from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

CHAINS = ["eth", "polygon", "base", "arb", "op", "linea", "avaxc", "tron"]


def murmur2(data):
    """Kafka's hash of a key (murmur2) whose length is a multiple of 4, as that of a wallet."""
    m, h = 0x5BD1E995, 0x9747B28C ^ len(data)
    for i in range(0, len(data), 4):
        k = int.from_bytes(data[i:i + 4], "little") * m & 0xFFFFFFFF
        h = (h * m ^ (k ^ k >> 24) * m) & 0xFFFFFFFF
    h = (h ^ h >> 13) * m & 0xFFFFFFFF
    return (h ^ h >> 15) & 0x7FFFFFFF


def lane(chain, wallet, lanes):
    """The partition of a wallet: its 20 bytes are hashed, not its text."""
    return CHAINS.index(chain) * lanes + murmur2(wallet) % lanes


def digest(transfer):
    """Names a payment within its transaction. The log index is left out: nodes may correct it."""
    seen = transfer["transfer"]
    names = [seen["contract"], seen["from_address"], seen["to_address"], transfer["value_text"], str(seen["ordinal"])]
    return hashlib.sha256("/".join(names).encode()).hexdigest()[:16]


def publish(brokers, registry, topic, transactional_id, lanes, transfer, head):
    """One block: its transfer to the wallet's lane, its head to every lane of the chain, or nothing."""
    client = SchemaRegistryClient({"url": registry})
    schema = client.get_latest_version(topic + "-value").schema.schema_str
    encode = AvroSerializer(client, schema, conf={"auto.register.schemas": False})
    context = SerializationContext(topic, MessageField.VALUE)
    producer = Producer({"bootstrap.servers": brokers, "transactional.id": transactional_id})
    producer.init_transactions()
    producer.begin_transaction()
    chain, seen = transfer["blockchain"], transfer["transfer"]
    wallet = bytes.fromhex(seen["to_address"][2:])
    key = f"{chain}/{transfer['block']['hash']}/{seen['tx_hash']}/{digest(transfer)}"
    producer.produce(topic, encode(transfer, context), key, lane(chain, wallet, lanes))
    for number in range(lanes):
        partition = CHAINS.index(chain) * lanes + number
        producer.produce(topic, encode(head, context), chain, partition)
    producer.commit_transaction()
# end


def plain(value):
    """The value as `tidemark tail` prints it."""
    if isinstance(value, dict):
        return {name: plain(field) for name, field in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, decimal.Decimal):
        whole, _, fraction = f"{value:f}".partition(".")
        return f"{whole}.{fraction.rstrip('0').ljust(2, '0')}"
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if isinstance(value, bytes):
        return value.hex()
    return value


def read(brokers, registry, group, count, *topics):
    """Prints as many records as there should be; everything must decode."""
    count = int(count)
    for message, value in records(brokers, registry, list(topics), group, fail):
        position = {"topic": message.topic(), "partition": message.partition()}
        position |= {"offset": message.offset(), "key": message.key().decode()}
        print(json.dumps(position | {"value": plain(value)}))
        count -= 1
        if count == 0:
            return


def fail(message, error):
    """For readers that meet nothing but what Tidemark wrote."""
    raise error


def write(brokers, registry, topic, transactional_id, lanes):
    """A block of polygon with one transfer, confirmed at once."""
    seen = datetime.datetime(2026, 9, 21, 14, 13, 32, 345678, datetime.timezone.utc)
    record = {
        "blockchain": "polygon",
        "epoch": 0,
        "block": {"number": 100, "hash": "0x" + "ab" * 32, "timestamp": 1_790_000_000},
        "observed_at": seen,
    }
    transfer = {
        "token": "USDT",
        "contract": "0x" + "c0" * 20,
        "from_address": "0x" + "f0" * 20,
        "to_address": "0x" + "11" * 20,
        "tx_hash": "0x" + "01" * 32,
        "log_index": 3,
        "ordinal": 0,
        "value": decimal.Decimal("12.340000000000000000"),
    }
    tiers = [{"below": None, "number": 100}]
    head = {"confirmed": tiers, "finalized": 90, "match_window_seconds": 3600}
    transfer = record | {"kind": "transfer", "transfer": transfer, "value_text": "12.34"}
    head = record | {"kind": "head", "head": head}
    publish(brokers, registry, topic, transactional_id, int(lanes), transfer, head)


def show_lane(chain, wallet, lanes):
    """Prints the partition of a wallet."""
    print(lane(chain, bytes.fromhex(wallet), int(lanes)))


if __name__ == "__main__":
    {"read": read, "write": write, "lane": show_lane}[sys.argv[1]](*sys.argv[2:])
