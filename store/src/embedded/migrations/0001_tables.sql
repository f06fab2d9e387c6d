-- One table for each kind of row. `record` is the whole record as it was on the log; the other columns
-- are only what queries filter and sort by. `updated_at` is the record's version clock, in microseconds.
-- Tables with lists keep their rowid: a list then skips to its offset inside the index alone.

CREATE TABLE orders (
    order_id          BLOB    NOT NULL PRIMARY KEY, -- 16 bytes, UUIDv7: new rows land at the end
    updated_at        INTEGER NOT NULL,
    created_at        INTEGER NOT NULL,             -- Unix seconds
    status            TEXT    NOT NULL,
    merchant_order_id TEXT    NOT NULL,
    record            BLOB    NOT NULL
) STRICT;
CREATE INDEX orders_by_time ON orders (created_at, order_id);
CREATE INDEX orders_by_status ON orders (status, created_at, order_id);
CREATE INDEX orders_by_reference ON orders (merchant_order_id, created_at, order_id, status);

-- Closed deposits stay as tombstones: an older record that comes later must not open them again.
CREATE TABLE deposits (
    deposit_id INTEGER NOT NULL PRIMARY KEY,
    updated_at INTEGER NOT NULL,
    state      TEXT    NOT NULL,
    started_at INTEGER NOT NULL, -- Unix seconds
    order_id   BLOB    NOT NULL,
    blockchain TEXT    NOT NULL,
    token      TEXT    NOT NULL,
    record     BLOB    NOT NULL
) STRICT;
CREATE INDEX deposits_open_by_time ON deposits (started_at, deposit_id) WHERE state = 'open';
CREATE INDEX deposits_open_by_order
    ON deposits (order_id, started_at, deposit_id) WHERE state = 'open';
CREATE INDEX deposits_open_by_chain
    ON deposits (blockchain, started_at, deposit_id, token) WHERE state = 'open';
CREATE INDEX deposits_open_by_token
    ON deposits (token, started_at, deposit_id) WHERE state = 'open';
CREATE INDEX deposits_closed_by_order ON deposits (order_id) WHERE state <> 'open';

-- Only the index that is led by the status holds it: a transfer changes its status several times.
CREATE TABLE transfers (
    transfer_id INTEGER NOT NULL PRIMARY KEY,
    updated_at  INTEGER NOT NULL,
    wallet      TEXT    NOT NULL, -- the recipient
    created_at  INTEGER NOT NULL, -- Unix seconds
    status      TEXT    NOT NULL,
    blockchain  TEXT    NOT NULL,
    token       TEXT    NOT NULL,
    record      BLOB    NOT NULL
) STRICT;
CREATE INDEX transfers_by_wallet ON transfers (wallet, created_at, transfer_id);
CREATE INDEX transfers_by_status
    ON transfers (wallet, status, created_at, transfer_id, blockchain, token);
CREATE INDEX transfers_by_chain ON transfers (wallet, blockchain, created_at, transfer_id, token);
CREATE INDEX transfers_by_token ON transfers (wallet, token, created_at, transfer_id);

-- Attempts never change. An order's delivery state is counted from them, so that applying one twice,
-- or in any order, counts it once.
CREATE TABLE attempts (
    event_id     TEXT    NOT NULL,
    attempt      INTEGER NOT NULL,
    manual       INTEGER NOT NULL, -- 0 or 1
    order_id     BLOB,             -- none for events about a transfer
    transfer_id  INTEGER,          -- none for events about an order
    attempted_at INTEGER NOT NULL, -- Unix microseconds
    counted      INTEGER NOT NULL, -- 0 or 1: whether a request was made
    delivered    INTEGER NOT NULL, -- 0 or 1
    record       BLOB    NOT NULL,
    PRIMARY KEY (event_id, attempt, manual)
) STRICT, WITHOUT ROWID;
-- An order has few: its counts are read from the same entries as its list.
CREATE INDEX attempts_by_order
    ON attempts (order_id, attempted_at, event_id, attempt, counted, delivered)
    WHERE order_id IS NOT NULL;
CREATE INDEX attempts_by_transfer
    ON attempts (transfer_id, attempted_at, event_id, attempt) WHERE transfer_id IS NOT NULL;

CREATE TABLE chains (
    blockchain TEXT    NOT NULL,
    lane       INTEGER NOT NULL, -- -1 for what ingest has scanned
    updated_at INTEGER NOT NULL,
    record     BLOB    NOT NULL,
    PRIMARY KEY (blockchain, lane)
) STRICT, WITHOUT ROWID;

-- Before which second what is final was removed. One row, from the first time on.
CREATE TABLE pruned (
    part           INTEGER NOT NULL PRIMARY KEY, -- always 0
    created_before INTEGER NOT NULL              -- Unix seconds
) STRICT;

-- The log that the tables are made from. One row.
CREATE TABLE origin (
    part         INTEGER NOT NULL PRIMARY KEY, -- always 0
    installation TEXT    NOT NULL,
    incarnation  INTEGER NOT NULL
) STRICT;

-- How far: nothing before `next` is missing.
CREATE TABLE positions (
    topic     TEXT    NOT NULL,
    partition INTEGER NOT NULL,
    next      INTEGER NOT NULL,
    PRIMARY KEY (topic, partition)
) STRICT, WITHOUT ROWID;
