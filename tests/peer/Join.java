// The peer of `cargo xtask bench kafka`: the join of transfers with open deposits in Kafka Streams,
// exactly_once_v2.
//
// Reads deposits.commands and transfers.raw (layouts below), writes transfers.detected,
// transfers.confirmed and orders.commands: as many records of the same size as our processor does for
// each input, and one changelog entry more. It has the easier task: a fixed binary layout instead of
// Avro, constant text up to the size of ours, ids from offsets instead of a counter in its state, no
// late windows, no retracts, no expiry, no amounts to choose.
//
//   java Join drain|live BROKERS PREFIX THREADS COMMIT_MS TRANSFER_BYTES COMMAND_BYTES ENTRY_BYTES
//
// `drain` takes all input that is there, prints one line of JSON and ends. `live` prints a line when it
// has taken all input that was there, and goes on until the end of standard input.

import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Collection;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.processor.StreamPartitioner;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

public final class Join implements Processor<byte[], byte[], byte[], byte[]> {
    // A transfer: 'T', height 8, transaction 32, ordinal 4, wallet 20, token 1, units 16, block time 8,
    // 88 bytes that are only handed on (block hash, contract, sender, observed at, epoch), and 1 where the
    // head of its own step confirms it.
    private static final int HEIGHT = 1, PAYMENT = 9, T_KEY = 45, T_TIME = 82, T_END = 178;
    // A deposit to open: 'O', order 16, wallet 20, token 1, units 16, from 8, until 8.
    private static final int O_ORDER = 1, O_KEY = 17, O_TIMES = 54, O_END = 70;
    // A head: 'H', height 8.
    private static final int PAYMENT_BYTES = 36, KEY_BYTES = 37, WALLET_BYTES = 20, ORDER_BYTES = 16;
    // A stored deposit: id 8, order 16, from 8, until 8.
    private static final int D_ORDER = 8, D_FROM = 24, D_UNTIL = 32, D_END = 40;
    // A stored transfer: id 8, status 1, deposit 8, order 16, the transfer.
    private static final int E_STATUS = 8, E_DEPOSIT = 9, E_ORDER = 17, E_TRANSFER = 33;
    // A published transfer: id 8, updated at 8, status 1, deposit 8, order 16, the transfer.
    private static final int P_STATUS = 16, P_DEPOSIT = 17, P_TRANSFER = 41;
    private static final byte WAITING = 0, SETTLING = 1, UNMATCHED = 2;
    private static final long SKEW_SECONDS = 120;
    private static final int SEQUENCE_BITS = 40;
    /** Fills a record up to the size of ours: constant and well compressed. */
    private static final byte[] FILLER = filler(4096);

    private static int transferBytes, commandBytes, entryBytes;

    private ProcessorContext<byte[], byte[]> context;
    private KeyValueStore<Bytes, byte[]> deposits, transfers;
    /** Transfers that wait for a head, by height; made from the store when a task starts. */
    private final ArrayDeque<Bytes> unconfirmed = new ArrayDeque<>();

    @Override
    public void init(ProcessorContext<byte[], byte[]> context) {
        this.context = context;
        deposits = context.getStateStore("deposits");
        transfers = context.getStateStore("transfers");
        TreeMap<Long, Bytes> waiting = new TreeMap<>();
        try (var all = transfers.all()) {
            all.forEachRemaining(entry -> {
                if (entry.value[E_STATUS] == WAITING) waiting.put(number(entry.value, 0), entry.key);
            });
        }
        unconfirmed.addAll(waiting.values());
    }

    @Override
    public void process(Record<byte[], byte[]> record) {
        byte[] value = record.value();
        var place = context.recordMetadata().orElseThrow();
        long id = ((long) place.partition() << SEQUENCE_BITS) | place.offset();
        switch (value[0]) {
            case 'T' -> detect(record, id);
            case 'H' -> confirm(record);
            case 'O' -> open(value, id);
            default -> throw new IllegalArgumentException("not a record: " + value[0]);
        }
    }

    private void open(byte[] open, long id) {
        Bytes key = Bytes.wrap(Arrays.copyOfRange(open, O_KEY, O_KEY + KEY_BYTES));
        if (deposits.get(key) != null) return;
        byte[] deposit = new byte[D_END];
        put(deposit, 0, id);
        System.arraycopy(open, O_ORDER, deposit, D_ORDER, ORDER_BYTES);
        System.arraycopy(open, O_TIMES, deposit, D_FROM, O_END - O_TIMES);
        deposits.put(key, deposit);
    }

    private void detect(Record<byte[], byte[]> record, long id) {
        byte[] seen = record.value();
        Bytes payment = Bytes.wrap(Arrays.copyOfRange(seen, PAYMENT, PAYMENT + PAYMENT_BYTES));
        if (transfers.get(payment) != null) return;
        byte[] entry = sized(entryBytes);
        put(entry, 0, id);
        System.arraycopy(seen, 0, entry, E_TRANSFER, T_END);
        byte[] deposit = deposits.get(Bytes.wrap(Arrays.copyOfRange(seen, T_KEY, T_KEY + KEY_BYTES)));
        long time = number(seen, T_TIME);
        boolean fits = deposit != null && time >= number(deposit, D_FROM) - SKEW_SECONDS
            && time <= number(deposit, D_UNTIL);
        boolean confirmed = fits && seen[T_END] == 1;
        entry[E_STATUS] = confirmed ? SETTLING : fits ? WAITING : UNMATCHED;
        if (confirmed) {
            System.arraycopy(deposit, 0, entry, E_DEPOSIT, D_FROM);
            tell(record, entry, (byte) 'S');
        } else if (fits) {
            System.arraycopy(deposit, 0, entry, E_DEPOSIT, D_FROM);
            unconfirmed.add(payment);
            tell(record, entry, (byte) 'C');
        }
        publish(record, entry, confirmed ? "transfers.confirmed" : "transfers.detected");
        transfers.put(payment, entry);
    }

    private void confirm(Record<byte[], byte[]> head) {
        long height = number(head.value(), HEIGHT);
        for (Bytes payment; (payment = unconfirmed.peek()) != null; unconfirmed.remove()) {
            byte[] waiting = transfers.get(payment);
            if (number(waiting, E_TRANSFER + HEIGHT) > height) return;
            byte[] entry = waiting.clone();
            entry[E_STATUS] = SETTLING;
            publish(head, entry, "transfers.confirmed");
            tell(head, entry, (byte) 'S');
            transfers.put(payment, entry);
        }
    }

    private void publish(Record<byte[], byte[]> cause, byte[] entry, String sink) {
        byte[] transfer = sized(transferBytes);
        System.arraycopy(entry, 0, transfer, 0, 8);
        put(transfer, 8, cause.timestamp());
        transfer[P_STATUS] = entry[E_STATUS];
        System.arraycopy(entry, E_DEPOSIT, transfer, P_DEPOSIT, E_TRANSFER - E_DEPOSIT);
        System.arraycopy(entry, E_TRANSFER, transfer, P_TRANSFER, T_END);
        byte[] wallet = Arrays.copyOfRange(entry, E_TRANSFER + T_KEY, E_TRANSFER + T_KEY + WALLET_BYTES);
        context.forward(new Record<>(wallet, transfer, cause.timestamp()), sink);
    }

    private void tell(Record<byte[], byte[]> cause, byte[] entry, byte kind) {
        byte[] command = sized(commandBytes);
        command[0] = kind;
        System.arraycopy(entry, 0, command, 1, E_TRANSFER);
        byte[] order = Arrays.copyOfRange(entry, E_ORDER, E_ORDER + ORDER_BYTES);
        context.forward(new Record<>(order, command, cause.timestamp()), "orders.commands");
    }

    private static byte[] sized(int bytes) {
        return Arrays.copyOf(FILLER, bytes);
    }

    private static long number(byte[] from, int at) {
        return ByteBuffer.wrap(from).getLong(at);
    }

    private static void put(byte[] into, int at, long number) {
        ByteBuffer.wrap(into).putLong(at, number);
    }

    private static byte[] filler(int bytes) {
        String text = "blockchain eth stablecoin usdt status waiting_for_confirmation reason none ";
        return Arrays.copyOf(text.repeat(bytes / text.length() + 1).getBytes(StandardCharsets.US_ASCII), bytes);
    }

    private static Topology topology(String prefix) {
        var read = new ByteArrayDeserializer();
        var write = new ByteArraySerializer();
        // A transfer's partition is in its id.
        StreamPartitioner<byte[], byte[]> lane = (topic, key, value, count) ->
            Optional.of(Set.of((int) (number(value, 0) >> SEQUENCE_BITS)));
        Topology topology = new Topology();
        topology.addSource("input", read, read, prefix + "deposits.commands", prefix + "transfers.raw");
        topology.addProcessor("join", Join::new, "input");
        topology.addStateStore(store("deposits"), "join");
        topology.addStateStore(store("transfers"), "join");
        topology.addSink("transfers.detected", prefix + "transfers.detected", write, write, lane, "join");
        topology.addSink("transfers.confirmed", prefix + "transfers.confirmed", write, write, lane, "join");
        topology.addSink("orders.commands", prefix + "orders.commands", write, write, "join");
        return topology;
    }

    /** In memory with a changelog. With a cache it writes fewer entries and takes twice the time. */
    private static StoreBuilder<KeyValueStore<Bytes, byte[]>> store(String name) {
        var store = Stores.inMemoryKeyValueStore(name);
        var builder = Stores.keyValueStoreBuilder(store, Serdes.Bytes(), Serdes.ByteArray());
        return builder.withLoggingEnabled(Map.of()).withCachingDisabled();
    }

    private static Properties properties(String brokers, String group, String threads, String commit)
            throws Exception {
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, group);
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, brokers);
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        properties.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, threads);
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, commit);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, Files.createTempDirectory("peer").toString());
        properties.put(StreamsConfig.producerPrefix("batch.size"), 128 << 10);
        properties.put(StreamsConfig.producerPrefix("compression.type"), "lz4");
        properties.put(StreamsConfig.producerPrefix("buffer.memory"), 128 << 20);
        properties.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        properties.put(StreamsConfig.consumerPrefix("max.poll.records"), 4096);
        // A stopped instance does not leave its group: the next one need not wait long for it.
        properties.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 3000);
        properties.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), 500);
        return properties;
    }

    /** How long each part of the restore took, and how many entries there were. */
    private static final class Restored implements StateRestoreListener {
        private final AtomicLong first = new AtomicLong(), last = new AtomicLong(), entries = new AtomicLong();

        @Override
        public void onRestoreStart(TopicPartition from, String store, long start, long end) {
            first.compareAndSet(0, System.nanoTime());
        }

        @Override
        public void onBatchRestored(TopicPartition from, String store, long end, long count) {}

        @Override
        public void onRestoreEnd(TopicPartition from, String store, long count) {
            entries.addAndGet(count);
            last.set(System.nanoTime());
        }
    }

    /** Next offsets of the inputs. */
    private static Map<TopicPartition, Long> ends(Admin admin, Collection<String> topics) throws Exception {
        var described = admin.describeTopics(topics).allTopicNames().get().values();
        var wanted = described.stream()
            .flatMap(topic -> topic.partitions().stream().map(p -> new TopicPartition(topic.name(), p.partition())))
            .collect(Collectors.toMap(partition -> partition, partition -> OffsetSpec.latest()));
        return admin.listOffsets(wanted).all().get().entrySet().stream()
            .collect(Collectors.toMap(Map.Entry::getKey, entry -> entry.getValue().offset()));
    }

    /** How many inputs the group has committed. */
    private static long committed(Admin admin, String group, Set<TopicPartition> inputs) throws Exception {
        var offsets = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        return inputs.stream().map(offsets::get).filter(at -> at != null).mapToLong(at -> at.offset()).sum();
    }

    private static double cpuSeconds() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime() / 1e9;
    }

    private static long residentBytes() throws Exception {
        try (var lines = Files.lines(Path.of("/proc/self/status"))) {
            String line = lines.filter(text -> text.startsWith("VmRSS:")).findFirst().orElseThrow();
            return Long.parseLong(line.replaceAll("[^0-9]", "")) * 1024;
        }
    }

    public static void main(String[] args) throws Exception {
        boolean live = args[0].equals("live");
        String brokers = args[1], prefix = args[2], group = prefix + "join";
        transferBytes = Math.max(Integer.parseInt(args[5]) - WALLET_BYTES, P_TRANSFER + T_END);
        commandBytes = Math.max(Integer.parseInt(args[6]) - ORDER_BYTES, E_TRANSFER + 1);
        entryBytes = Math.max(Integer.parseInt(args[7]) - PAYMENT_BYTES, E_TRANSFER + T_END);
        Restored restored = new Restored();
        KafkaStreams streams = new KafkaStreams(topology(prefix), properties(brokers, group, args[3], args[4]));
        streams.setGlobalStateRestoreListener(restored);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", brokers))) {
            var ends = ends(admin, Set.of(prefix + "deposits.commands", prefix + "transfers.raw"));
            long end = ends.values().stream().mapToLong(Long::longValue).sum();
            long before = committed(admin, group, ends.keySet());
            streams.start();
            while (streams.state() != KafkaStreams.State.RUNNING) Thread.sleep(1);
            long resident = residentBytes();
            // What the compiler has not seen yet is not counted: the first fifth.
            long from = before + (end - before) / 5, begun = before, now = before;
            long started = System.nanoTime(), stopped = started;
            double cpu = cpuSeconds();
            while (now < end) {
                Thread.sleep(20);
                now = committed(admin, group, ends.keySet());
                stopped = System.nanoTime();
                if (begun < from && now >= from) {
                    begun = now;
                    started = stopped;
                    cpu = cpuSeconds();
                }
            }
            System.out.printf("{\"inputs\":%d,\"nanos\":%d,\"cpu_nanos\":%d,"
                + "\"restored\":%d,\"restore_nanos\":%d,\"restored_resident_bytes\":%d}%n",
                now - begun, stopped - started, (long) ((cpuSeconds() - cpu) * 1e9),
                restored.entries.get(), restored.last.get() - restored.first.get(), resident);
        }
        while (live && System.in.read() >= 0) {}
        streams.close(Duration.ofSeconds(20));
        System.exit(0);
    }
}
