// Reads every topic and writes transfers.raw with kafka-clients and Avro, as docs/consume shows.

// recipe: read
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.*;
import org.apache.avro.Conversions;
import org.apache.avro.Schema;
import org.apache.avro.data.TimeConversions;
import org.apache.avro.generic.*;
import org.apache.avro.io.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.serialization.*;

// end

public class Client {
    public static void main(String[] given) throws Exception {
        List<String> rest = List.of(given).subList(1, given.length);
        switch (given[0]) {
            case "read" -> read(rest.get(0), new Registry(rest.get(1)), rest.get(2),
                    Integer.parseInt(rest.get(3)), rest.subList(4, rest.size()));
            case "write" -> write(rest.get(0), new Registry(rest.get(1)), rest.get(2), rest.get(3),
                    Integer.parseInt(rest.get(4)));
            case "lane" -> System.out.println(Lane.of(rest.get(0),
                    HexFormat.of().parseHex(rest.get(1)), Integer.parseInt(rest.get(2))));
            default -> throw new IllegalArgumentException(given[0]);
        }
    }

    /** Prints as many records as there should be; everything must decode. */
    static void read(String brokers, Registry registry, String group, int count, List<String> topics)
            throws Exception {
        var left = new java.util.concurrent.atomic.AtomicInteger(count);
        Reader.run(brokers, registry, topics, group, new Reader.Book() {
            @Override
            public boolean record(ConsumerRecord<String, byte[]> found, GenericRecord value)
                    throws IOException {
                Map<String, Object> line = new TreeMap<>();
                line.put("topic", found.topic());
                line.put("partition", found.partition());
                line.put("offset", found.offset());
                line.put("key", found.key());
                line.put("value", plain(value));
                System.out.println(new ObjectMapper().writeValueAsString(line));
                return left.decrementAndGet() > 0;
            }

            @Override
            public void setAside(ConsumerRecord<String, byte[]> found, Undecodable error) {
                throw new IllegalStateException(error);
            }
        });
    }

    /** The value as `tidemark tail` prints it. */
    static Object plain(Object value) {
        if (value instanceof GenericRecord record) {
            Map<String, Object> fields = new TreeMap<>();
            record.getSchema().getFields().forEach(
                    field -> fields.put(field.name(), plain(record.get(field.pos()))));
            return fields;
        }
        if (value instanceof List<?> items) return items.stream().map(Client::plain).toList();
        if (value instanceof java.math.BigDecimal amount) {
            java.math.BigDecimal stripped = amount.stripTrailingZeros();
            return (stripped.scale() < 2 ? stripped.setScale(2) : stripped).toPlainString();
        }
        if (value instanceof java.time.Instant time) {
            return java.time.format.DateTimeFormatter.ofPattern("uuuu-MM-dd'T'HH:mm:ss.SSSSSS'Z'")
                    .withZone(java.time.ZoneOffset.UTC).format(time);
        }
        if (value instanceof ByteBuffer bytes) return HexFormat.of().formatHex(bytes.array());
        return value instanceof CharSequence text ? text.toString() : value;
    }

    /** A block of arb with one transfer, confirmed at once. */
    static void write(String brokers, Registry registry, String topic, String transactionalId, int lanes)
            throws Exception {
        Map<?, ?> latest = registry.get("/subjects/" + topic + "-value/versions/latest");
        int id = (Integer) latest.get("id");
        Schema schema = new Schema.Parser().parse((String) latest.get("schema"));
        GenericRecord block = part(schema, "block", Map.of(
                "number", 300L, "hash", "0x" + "ef".repeat(32), "timestamp", 1_790_000_000L));
        byte[] wallet = HexFormat.of().parseHex("33".repeat(20));
        GenericRecord seen = part(schema, "transfer", Map.of(
                "token", "DAI", "contract", "0x" + "c0".repeat(20),
                "from_address", "0x" + "f0".repeat(20), "to_address", "0x" + "33".repeat(20),
                "tx_hash", "0x" + "03".repeat(32), "log_index", 5, "ordinal", 0,
                "value", new java.math.BigDecimal("0.000000000000000003")));
        GenericRecord head = part(schema, "head", Map.of(
                "confirmed", List.of(), "finalized", 290L, "match_window_seconds", 3600L));
        Schema tiers = head.getSchema().getField("confirmed").schema();
        head.put("confirmed", List.of(new GenericRecordBuilder(tiers.getElementType())
                .set("below", null).set("number", 300L).build()));
        try (var producer = Writer.producer(brokers, transactionalId)) {
            producer.initTransactions();
            producer.beginTransaction();
            GenericRecord transfer = new GenericRecordBuilder(record(schema, block, "transfer"))
                    .set("transfer", seen).set("value_text", "0.000000000000000003").build();
            producer.send(new org.apache.kafka.clients.producer.ProducerRecord<>(topic,
                    Lane.of("arb", wallet, lanes), key(transfer, seen),
                    Writer.encode(id, transfer)));
            GenericRecord last = record(schema, block, "head");
            last.put("head", head);
            for (int number = 0; number < lanes; number++) {
                int partition = Lane.CHAINS.indexOf("arb") * lanes + number;
                producer.send(new org.apache.kafka.clients.producer.ProducerRecord<>(
                        topic, partition, "arb", Writer.encode(id, last)));
            }
            producer.commitTransaction();
        }
    }

    /** The same for the same transfer in the same block, wherever a node says that it is in it. */
    static String key(GenericRecord transfer, GenericRecord seen) throws Exception {
        String names = String.join("/", seen.get("contract").toString(), seen.get("from_address").toString(),
                seen.get("to_address").toString(), transfer.get("value_text").toString(),
                seen.get("ordinal").toString());
        byte[] hash = java.security.MessageDigest.getInstance("SHA-256")
                .digest(names.getBytes(java.nio.charset.StandardCharsets.UTF_8));
        String digest = HexFormat.of().formatHex(hash).substring(0, 16);
        return "arb/" + ((GenericRecord) transfer.get("block")).get("hash") + "/" + seen.get("tx_hash") + "/" + digest;
    }

    static GenericData.Record record(Schema schema, GenericRecord block, String kind) {
        return new GenericRecordBuilder(schema).set("kind", kind).set("blockchain", "arb")
                .set("epoch", 0L).set("block", block)
                .set("observed_at", java.time.Instant.parse("2026-09-21T14:13:32.345678Z")).build();
    }

    /** A record inside a record, whose field may be null. */
    static GenericRecord part(Schema schema, String field, Map<String, Object> values) {
        Schema type = schema.getField(field).schema();
        if (type.isUnion()) type = type.getTypes().get(1);
        GenericRecordBuilder builder = new GenericRecordBuilder(type);
        values.forEach(builder::set);
        return builder.build();
    }
}

// recipe: read
/** The schemas, by the id that values begin with. An id is one schema for ever. */
class Registry {
    static final GenericData DATA = new GenericData();

    static {
        // Amounts are BigDecimal, times Instant.
        DATA.addLogicalTypeConversion(new Conversions.DecimalConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.TimestampMicrosConversion());
    }

    private final Map<Integer, Schema> schemas = new HashMap<>();
    private final HttpClient http = HttpClient.newHttpClient();
    private final String url;

    Registry(String url) {
        this.url = url;
    }

    Map<?, ?> get(String path) throws IOException, InterruptedException {
        HttpRequest request = HttpRequest.newBuilder(URI.create(url + path)).build();
        HttpResponse<String> response = http.send(request, HttpResponse.BodyHandlers.ofString());
        if (response.statusCode() != 200) throw new IOException(path + ": " + response.body());
        return new ObjectMapper().readValue(response.body(), Map.class);
    }

    /** The record in a value: a zero byte, the schema id in four bytes, Avro. */
    GenericRecord decode(byte[] value) throws Undecodable, IOException, InterruptedException {
        if (value == null) return null; // A tombstone.
        if (value.length < 5 || value[0] != 0) {
            throw new Undecodable("not in the Confluent wire format", null);
        }
        int id = ByteBuffer.wrap(value, 1, 4).getInt();
        if (!schemas.containsKey(id)) {
            String text = (String) get("/schemas/ids/" + id).get("schema");
            schemas.put(id, new Schema.Parser().parse(text));
        }
        Schema schema = schemas.get(id);
        try {
            Decoder decoder = DecoderFactory.get().binaryDecoder(value, 5, value.length - 5, null);
            return new GenericDatumReader<GenericRecord>(schema, schema, DATA).read(null, decoder);
        } catch (IOException | RuntimeException error) {
            throw new Undecodable("not a record of its schema", error);
        }
    }
}

/** The value will never decode. That the registry is away, or older than the record, is another error. */
class Undecodable extends Exception {
    Undecodable(String message, Throwable cause) {
        super(message, cause);
    }
}

class Reader {
    /** What is done with records: durable once a method returns. */
    interface Book {
        /** Whether to read on after these. */
        boolean record(ConsumerRecord<String, byte[]> message, GenericRecord value) throws Exception;

        void setAside(ConsumerRecord<String, byte[]> message, Undecodable error) throws Exception;
    }

    /** Hands every committed record of some topics to a book, at least once each. */
    static void run(String brokers, Registry registry, List<String> topics, String group, Book book)
            throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", brokers);
        properties.put("group.id", group);
        // Without this you see records of steps that were aborted.
        properties.put("isolation.level", "read_committed");
        properties.put("auto.offset.reset", "earliest");
        // With this on, a timer commits what you have not worked off yet, and a crash loses it.
        properties.put("enable.auto.commit", "false");
        // close() leaves the group at once; else its partitions wait for session.timeout.ms.
        try (var consumer = new KafkaConsumer<>(
                properties, new StringDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(topics);
            for (boolean more = true; more; ) {
                for (ConsumerRecord<String, byte[]> message : consumer.poll(Duration.ofSeconds(1))) {
                    try {
                        more &= book.record(message, registry.decode(message.value()));
                    } catch (Undecodable error) {
                        book.setAside(message, error);
                    }
                }
                consumer.commitSync(); // All that was polled is booked.
            }
        }
    }
}
// end

// recipe: write
class Lane {
    static final List<String> CHAINS =
            List.of("eth", "polygon", "base", "arb", "op", "linea", "avaxc", "tron");

    /** The partition of a wallet: its 20 bytes are hashed, not its text. */
    static int of(String chain, byte[] wallet, int lanes) {
        int hash = org.apache.kafka.common.utils.Utils.murmur2(wallet) & 0x7fffffff;
        return CHAINS.indexOf(chain) * lanes + hash % lanes;
    }
}

class Writer {
    /** The value of a record with this schema. */
    static byte[] encode(int id, GenericRecord record) throws IOException {
        var bytes = new java.io.ByteArrayOutputStream();
        bytes.write(ByteBuffer.allocate(5).put((byte) 0).putInt(id).array());
        BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(bytes, null);
        new GenericDatumWriter<GenericRecord>(record.getSchema(), Registry.DATA).write(record, encoder);
        encoder.flush();
        return bytes.toByteArray();
    }

    static org.apache.kafka.clients.producer.KafkaProducer<String, byte[]> producer(
            String brokers, String transactionalId) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", brokers);
        // A block is visible as a whole: its transfers and its heads are one transaction.
        properties.put("transactional.id", transactionalId);
        return new org.apache.kafka.clients.producer.KafkaProducer<>(
                properties, new StringSerializer(), new ByteArraySerializer());
    }
}
// end
