//! Metrics of ingest.

/// Failures of an endpoint, by `Refusal::class` and `Fault::class`.
pub(crate) const CLASSES: &[&str] = &[
    "size",
    "rate",
    "behind",
    "timeout",
    "transient",
    "pruned",
    "fatal",
    "contradiction",
    "forked",
    "wrong",
];
const TAGS: &[&str] = &["safe", "finalized"];
const TAG_FAULTS: &[&str] = &["absent", "old", "young", "foreign"];
const DIFFERENCES: &[&str] =
    &["late_find", "omitted", "disputed", "forged", "behind", "fork", "contradiction"];

runtime::metrics! {
    /// Number of the last published head: behind the last scanned block while heads are held back.
    Gauge HEAD_BLOCK = "tidemark_ingest_head_block" [blockchain];
    /// Height up to which nothing is retracted any more.
    Gauge FINALIZED_BLOCK = "tidemark_ingest_finalized_block" [blockchain];
    /// Time of the last scanned block: its age is `time()` minus this. Read from the log when this process starts to
    /// follow the chain; absent where another process follows it.
    Gauge LAST_BLOCK_TIMESTAMP = "tidemark_ingest_last_block_timestamp_seconds" [blockchain];
    /// Blocks of the endpoint's chain that are not scanned yet, at the last poll.
    Gauge LAG_BLOCKS = "tidemark_ingest_lag_blocks" [blockchain];
    /// Atomic steps published.
    Counter STEPS_TOTAL = "tidemark_ingest_steps_total" [blockchain];
    /// Transfers published, re-inclusions counted again.
    Counter TRANSFERS_TOTAL = "tidemark_ingest_transfers_total" [blockchain];
    /// Orphaned transfers retracted.
    Counter RETRACTS_TOTAL = "tidemark_ingest_retracts_total" [blockchain];
    /// Events of a trusted contract whose amount cannot be represented; they are skipped.
    Counter SKIPPED_TOTAL = "tidemark_ingest_skipped_total" [blockchain];
    /// Requests sent to an endpoint, a batch as one.
    Counter RPC_REQUESTS_TOTAL = "tidemark_ingest_rpc_requests_total" [blockchain, endpoint];
    /// Failures of an endpoint: refused or broken requests, and answers that cannot be used.
    Counter RPC_ERRORS_TOTAL = "tidemark_ingest_rpc_errors_total" [blockchain, endpoint, class in CLASSES];
    /// 1 for the endpoint that the current step uses, 0 for the others.
    Gauge ENDPOINT_IN_USE = "tidemark_ingest_endpoint_in_use" [blockchain, endpoint];
    /// 1 while this endpoint is avoided and others are used instead.
    Gauge ENDPOINT_ASIDE = "tidemark_ingest_endpoint_aside" [blockchain, endpoint];
    /// Polls in which a tag required by the policy was absent, old, too young, or on another fork.
    Counter TAG_FAULTS_TOTAL = "tidemark_ingest_tag_faults_total" [blockchain, tag in TAGS, fault in TAG_FAULTS];
    /// Answers of an endpoint that is behind the last scanned block.
    Counter BEHIND_TOTAL = "tidemark_ingest_behind_total" [blockchain];
    /// Steps restarted because answers contradicted each other.
    Counter RETRIES_TOTAL = "tidemark_ingest_retries_total" [blockchain];
    /// Height up to which two endpoints were asked for every block, or the block was old and final when scanned.
    Gauge CHECKED_BLOCK = "tidemark_ingest_checked_block" [blockchain];
    /// 1 while a single endpoint confirms, up to `chains.*.alone`, because no other answers.
    Gauge ALONE = "tidemark_ingest_alone" [blockchain];
    /// Transfers that one endpoint confirmed alone.
    Counter CONFIRMED_ALONE_TOTAL = "tidemark_ingest_confirmed_alone_total" [blockchain];
    /// Differences between answers: `late_find`, `omitted`, `disputed`, `forged`, and answers that could not be
    /// used or contradict themselves: `behind`, `fork`, `contradiction`.
    Counter CHECK_DIFFERENCES_TOTAL = "tidemark_ingest_check_differences_total" [blockchain, kind in DIFFERENCES];
    /// Blocks by which a reorganisation rewound the cursor.
    Histogram REORG_DEPTH_BLOCKS = "tidemark_ingest_reorg_depth_blocks" [blockchain];
    /// Maximum blocks per request, adapted to the endpoint.
    Gauge RANGE_BLOCKS = "tidemark_ingest_range_blocks" [blockchain];
    /// 1 while this process follows the chain, otherwise 0. Exported for every configured chain from the start of
    /// ingest: a sum of 0 over all processes means that no process follows the chain.
    Gauge FOLLOWED = "tidemark_ingest_followed" [blockchain];
    /// 1 while the chain needs an operator: it is halted, or made no progress for five minutes. Absent where another
    /// process follows the chain.
    Gauge HALTED = "tidemark_ingest_halted" [blockchain];
}
