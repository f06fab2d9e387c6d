"""Runs the recipe of docs/consume/reading.md that books payments, and lets its test decide when it dies.

After each record is read and before it is booked, prints "read <transfer_id>" and waits for a line.
With "lossy" as the last argument the client commits by its own timer, as it does by default, and the
wait begins only once that happened: what the recipe must not do."""

import importlib.util
import sys
import time

from confluent_kafka import TopicPartition

path, brokers, registry, topic, group, database, *lossy = sys.argv[1:]
spec = importlib.util.spec_from_file_location("recipe", path)
recipe = importlib.util.module_from_spec(spec)
spec.loader.exec_module(recipe)
consumers = []


def consumer(config, plain=recipe.Consumer):
    """One that a restarted process replaces at once, instead of after a session time-out."""
    config["group.instance.id"] = "booking"
    if lossy:
        config |= {"enable.auto.commit": True, "auto.commit.interval.ms": 50}
    consumers.append(plain(config))
    return consumers[-1]


def records(*arguments, plain=recipe.records):
    """The records, each held back until the test lets it pass."""
    for message, value in plain(*arguments):
        if lossy:
            wait_for_commit(message)
        print(f"read {value['transfer_id']}", flush=True)
        if not sys.stdin.readline():
            return
        yield message, value
        print(f"booked {value['transfer_id']}", flush=True)


def wait_for_commit(message):
    """Returns once the group's position on the broker is behind the message."""
    partition = TopicPartition(message.topic(), message.partition())
    while consumers[-1].committed([partition], 10)[0].offset <= message.offset():
        time.sleep(0.01)


def set_aside(message, error):
    """Reports what does not decode."""
    print(f"aside {message.offset()}", flush=True)


recipe.Consumer = consumer
recipe.records = records
recipe.book_payments(brokers, registry, topic, group, database, set_aside)
