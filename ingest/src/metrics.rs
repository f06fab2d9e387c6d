//! What ingest measures.

runtime::metrics! {
    /// Number of the last scanned block.
    Gauge HEAD_BLOCK = "tidemark_ingest_head_block" [blockchain];
    /// Height up to which nothing is retracted any more.
    Gauge FINALIZED_BLOCK = "tidemark_ingest_finalized_block" [blockchain];
    /// Age of the last scanned block.
    Gauge LAG_SECONDS = "tidemark_ingest_lag_seconds" [blockchain];
    /// Atomic steps published.
    Counter STEPS_TOTAL = "tidemark_ingest_steps_total" [blockchain];
    /// Transfers published, re-inclusions counted again.
    Counter TRANSFERS_TOTAL = "tidemark_ingest_transfers_total" [blockchain];
    /// Orphaned transfers retracted.
    Counter RETRACTS_TOTAL = "tidemark_ingest_retracts_total" [blockchain];
    /// Events of a trusted contract whose amount cannot be represented; they are skipped.
    Counter SKIPPED_TOTAL = "tidemark_ingest_skipped_total" [blockchain];
    /// Refused or broken requests to the endpoint.
    Counter RPC_ERRORS_TOTAL = "tidemark_ingest_rpc_errors_total" [blockchain, class];
    /// Answers of an endpoint that is behind what was scanned.
    Counter BEHIND_TOTAL = "tidemark_ingest_behind_total" [blockchain];
    /// Steps begun again because answers contradicted each other.
    Counter RETRIES_TOTAL = "tidemark_ingest_retries_total" [blockchain];
    /// How far a reorganisation took the cursor back.
    Histogram REORG_DEPTH_BLOCKS = "tidemark_ingest_reorg_depth_blocks" [blockchain];
    /// Most blocks requested at once, adapted to the endpoint.
    Gauge RANGE_BLOCKS = "tidemark_ingest_range_blocks" [blockchain];
    /// 1 while a chain is halted and needs an operator, otherwise 0.
    Gauge HALTED = "tidemark_ingest_halted" [blockchain];
}
