// Stands in for a function of librdkafka 2.12.1 that ends the process when a broker comes back (its issue 5280, open).
//
// An answer may name the new leaders of partitions (KIP-951). Those without a leader are counted, but not written: the
// end of the list is memory that nobody wrote, and a negative partition in it is read far outside of an array. Here the
// list is cut where it ends. `.cargo/config.toml` has the linker call this one; where that file does not apply, the
// library's own is called as before.

#include <stddef.h>
#include <stdint.h>

// The public structures of librdkafka's metadata, as in rdkafka.h.
struct partition {
    int32_t id;
    int error;
    int32_t leader;
    int replica_count;
    int32_t *replicas;
    int in_sync_count;
    int32_t *in_sync;
};

struct topic {
    char *name;
    int partition_count;
    struct partition *partitions;
    int error;
};

struct metadata {
    int broker_count;
    void *brokers;
    int topic_count;
    struct topic *topics;
};

__attribute__((weak)) int __real_rd_kafka_metadata_update_op(void *client, struct metadata *metadata);

// What was written has a partition and a leader, and nothing else.
static int is_written(const struct partition *of) {
    return of->id >= 0 && of->leader >= 0 && of->error == 0 && of->replica_count == 0 && of->replicas == NULL &&
           of->in_sync_count == 0 && of->in_sync == NULL;
}

int __wrap_rd_kafka_metadata_update_op(void *client, struct metadata *metadata) {
    for (int i = 0; i < metadata->topic_count; i++) {
        struct topic *topic = &metadata->topics[i];
        int written = 0;
        while (written < topic->partition_count && is_written(&topic->partitions[written])) {
            written++;
        }
        topic->partition_count = written;
    }
    return __real_rd_kafka_metadata_update_op(client, metadata);
}
