// Decodes values of every topic and encodes transfers.raw with avsc, as docs/consume shows. How the
// bytes get from and to Kafka is any client's matter: here they are lines of hexadecimal digits.

'use strict';
const crypto = require('node:crypto');
const readline = require('node:readline');

// recipe: read
const avro = require('avsc');

// decimal(38,18) as text, such as "10.50": a JavaScript number would round it.
class Amount extends avro.types.LogicalType {
  _fromValue(bytes) {
    const digits = BigInt('0x' + bytes.toString('hex')).toString().padStart(19, '0');
    const fraction = digits.slice(-18).replace(/0+$/, '').padEnd(2, '0');
    return digits.slice(0, -18) + '.' + fraction;
  }
  _toValue(text) {
    if (typeof text !== 'string' || !/^\d+\.\d{1,18}$/.test(text)) return undefined;
    const [whole, fraction] = text.split('.');
    const hex = BigInt(whole + fraction.padEnd(18, '0')).toString(16);
    // Two's complement: a zero byte before a first bit that would mean "negative".
    const padded = hex.length % 2 ? '0' + hex : hex;
    return Buffer.from(/^[89a-f]/.test(padded) ? '00' + padded : padded, 'hex');
  }
}

// Microseconds since 1970 as they are: below 2^53.
class Micros extends avro.types.LogicalType {
  _fromValue(micros) { return micros; }
  _toValue(micros) { return micros; }
}

const types = new Map();

// The type of a schema, by the id that values begin with. An id is one schema for ever.
async function typeOf(registry, id) {
  if (!types.has(id)) {
    const response = await fetch(`${registry}/schemas/ids/${id}`);
    if (!response.ok) throw new Error(`schema ${id}: HTTP ${response.status}`);
    const logicalTypes = { decimal: Amount, 'timestamp-micros': Micros };
    const schema = JSON.parse((await response.json()).schema);
    types.set(id, avro.Type.forSchema(schema, { logicalTypes, wrapUnions: 'never' }));
  }
  return types.get(id);
}

// The value will never decode. That the registry is away, or older than the record, is another error.
class Undecodable extends Error {}

// The record in a value: a zero byte, the schema id in four bytes, Avro. No value is a tombstone.
async function decode(registry, value) {
  if (value === null) return null;
  if (value.length < 5 || value[0] !== 0) throw new Undecodable('not in the Confluent wire format');
  const type = await typeOf(registry, value.readUInt32BE(1));
  try {
    return type.fromBuffer(value.subarray(5));
  } catch (error) {
    throw new Undecodable('not a record of its schema', { cause: error });
  }
}
// end

// recipe: write
const CHAINS = ['eth', 'polygon', 'base', 'arb', 'op', 'linea', 'avaxc', 'tron'];

// Kafka's hash of a key (murmur2) whose length is a multiple of 4, as that of a wallet.
function murmur2(data) {
  const m = 0x5bd1e995;
  let h = 0x9747b28c ^ data.length;
  for (let i = 0; i < data.length; i += 4) {
    const k = Math.imul(data.readInt32LE(i), m);
    h = Math.imul(h, m) ^ Math.imul(k ^ (k >>> 24), m);
  }
  h = Math.imul(h ^ (h >>> 13), m);
  return (h ^ (h >>> 15)) & 0x7fffffff;
}

// The partition of a wallet: its 20 bytes are hashed, not its text.
function lane(chain, wallet, lanes) {
  return CHAINS.indexOf(chain) * lanes + murmur2(wallet) % lanes;
}

// The value of a record, with the newest schema of its subject.
async function encode(registry, subject, record) {
  const response = await fetch(`${registry}/subjects/${subject}/versions/latest`);
  const { id } = await response.json();
  const header = Buffer.alloc(5);
  header.writeUInt32BE(id, 1);
  return Buffer.concat([header, (await typeOf(registry, id)).toBuffer(record)]);
}
// end

// The value as `tidemark tail` prints it.
function plain(type, value) {
  if (type instanceof Micros) {
    const seconds = new Date(Math.floor(value / 1e6) * 1000).toISOString().slice(0, 19);
    return `${seconds}.${String(value % 1e6).padStart(6, '0')}Z`;
  }
  if (value === null || type instanceof Amount) return value;
  if (Buffer.isBuffer(value)) return value.toString('hex');
  if (type.typeName.startsWith('union')) {
    return plain(type.types.find((t) => t.typeName !== 'null'), value);
  }
  if (type.typeName === 'array') return value.map((item) => plain(type.itemsType, item));
  if (type.typeName !== 'record') return value;
  return Object.fromEntries(type.fields.map((f) => [f.name, plain(f.type, value[f.name])]));
}

// Lines "topic partition offset key value" in, lines of JSON out.
async function read(registry) {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [topic, partition, offset, key, hex] = line.split(' ');
    const bytes = Buffer.from(hex, 'hex');
    const type = await typeOf(registry, bytes.readUInt32BE(1));
    const value = plain(type, await decode(registry, bytes));
    const place = { topic, partition: Number(partition), offset: Number(offset), key };
    console.log(JSON.stringify({ ...place, value }));
  }
}

// A block of base with one transfer, confirmed at once: lines "partition key value" out.
async function write(registry, subject, lanes) {
  const record = {
    blockchain: 'base',
    epoch: 0,
    block: { number: 200, hash: '0x' + 'cd'.repeat(32), timestamp: 1790000000 },
    observed_at: 1790000012345678,
  };
  const wallet = Buffer.alloc(20, 0x22);
  const transfer = {
    token: 'USDC',
    contract: '0x' + 'c0'.repeat(20),
    from_address: '0x' + 'f0'.repeat(20),
    to_address: '0x' + wallet.toString('hex'),
    tx_hash: '0x' + '02'.repeat(32),
    log_index: 4,
    ordinal: 0,
    value: '200.000001',
  };
  const confirmed = [{ below: null, number: 200 }];
  const head = { confirmed, finalized: 190, match_window_seconds: 3600 };
  const seen = { ...record, kind: 'transfer', transfer, value_text: transfer.value };
  const first = CHAINS.indexOf('base') * lanes;
  const show = async (partition, key, value) => {
    const bytes = await encode(registry, subject, value);
    console.log(`${partition} ${key} ${bytes.toString('hex')}`);
  };
  const { contract, from_address: from, to_address: to, value, ordinal } = transfer;
  const names = [contract, from, to, value, ordinal].join('/');
  const digest = crypto.createHash('sha256').update(names).digest('hex').slice(0, 16);
  const key = `base/${record.block.hash}/${transfer.tx_hash}/${digest}`;
  await show(lane('base', wallet, lanes), key, seen);
  for (let number = 0; number < lanes; number += 1) {
    await show(first + number, 'base', { ...record, kind: 'head', head });
  }
}

function showLane(chain, wallet, lanes) {
  console.log(lane(chain, Buffer.from(wallet, 'hex'), Number(lanes)));
}

const [command, ...rest] = process.argv.slice(2);
Promise.resolve({ read, write, lane: showLane }[command](...rest)).catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
