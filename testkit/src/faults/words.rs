//! Known refusals of nodes and providers in place of requested data.

use self::Class::{Behind, Fatal, Pruned, Rate, Size, Timeout, Transient};

/// Meaning of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The range or its result is too large; first and last block of an accepted range, if suggested.
    Size(Option<(i64, i64)>),
    Rate,
    /// The node does not have the block yet, or no longer has it.
    Behind,
    Timeout,
    /// Temporary: a retry may succeed.
    Transient,
    /// The requested data was deleted.
    Pruned,
    /// Permanent: no retry succeeds.
    Fatal,
}

/// Provider, error code, message and meaning of each known refusal.
pub const REFUSALS: &[(&str, i64, &str, Class)] = &[
    (
        "infura",
        -32_005,
        "query returned more than 10000 results. Try with this block range [0x1, 0xA].",
        Size(Some((1, 10))),
    ),
    ("infura", -32_602, "range 20000 exceeds limit of 10000", Size(None)),
    ("infura", -32_005, "daily request count exceeded, request rate limited", Rate),
    (
        "alchemy",
        -32_600,
        "You can make eth_getLogs requests with up to a 10 block range. Based on your parameters, this \
         block range should work: [0x64, 0x6d]",
        Size(Some((100, 109))),
    ),
    (
        "alchemy",
        -32_602,
        "Log response size exceeded. You can make eth_getLogs requests with up to a 2K block range and \
         no limit on the response size, or you can request any block range with a cap of 10K logs in \
         the response. Based on your parameters and the response size limit, this block range should \
         work: [0x0, 0x7cf]",
        Size(Some((0, 1999))),
    ),
    ("alchemy", 429, "Your app has exceeded its compute units per second capacity", Rate),
    ("quicknode", -32_614, "eth_getLogs is limited to a 10,000 range", Size(None)),
    ("quicknode", -32_007, "50/second request limit reached - reduce calls per second", Rate),
    ("ankr", -32_600, "block range is too wide", Size(None)),
    (
        "thirdweb",
        -32_602,
        "Log response size exceeded. Maximum allowed number of requested blocks is 1000",
        Size(None),
    ),
    ("cloudflare", -32_047, "'fromBlock'-'toBlock' range too large. Max range: 800", Size(None)),
    ("1rpc", -32_602, "eth_getLogs is limited to 0 - 10000 blocks range", Size(None)),
    ("1rpc", -32_602, "response size should not greater than 10000000 bytes", Size(None)),
    (
        "blast",
        -32_600,
        "block range exceeds the range allowed for your plan (10000 > 5000)",
        Size(None),
    ),
    (
        "blockpi",
        -32_602,
        "eth_getLogs is limited to 1024 block. Please check the parameter",
        Size(None),
    ),
    (
        "chainstack",
        -32_602,
        "Block range limit exceeded. See more details at https://docs",
        Size(None),
    ),
    ("coinbase", -32_602, "please limit the query to at most 1000 blocks", Size(None)),
    ("publicnode", -32_701, "exceed maximum block range: 50000", Size(None)),
    ("drpc", 35, "ranges over 10000 blocks are not supported on freetier", Size(None)),
    ("drpc", 30, "Request timeout on the free tier, please upgrade your tier", Timeout),
    ("hyperliquid", -32_602, "query exceeds max block range 1000", Size(None)),
    ("harmony", -32_000, "GetLogs query must be smaller than size 1024", Size(None)),
    ("jsonrpsee", -32_008, "Response is too big", Size(None)),
    ("public arb", -32_000, "logs matched by query exceeds limit of 10000", Size(None)),
    ("public op", -32_020, "backend response too large", Size(None)),
    ("public op", -32_000, "Block range is too large", Size(None)),
    ("public base", -32_614, "block range too large", Size(None)),
    ("public base", -32_011, "no backend is currently healthy to serve traffic", Transient),
    ("bsc", -32_005, "limit exceeded", Rate),
    ("besu", -32_005, "Requested range exceeds maximum RPC range limit", Size(None)),
    ("besu", -32_005, "Number of requests exceeds max batch size", Transient),
    (
        "coreth",
        -32_000,
        "requested too many blocks from 0 to 4096, maximum is set to 2048",
        Size(None),
    ),
    ("coreth", -32_000, "cannot query unfinalized data", Behind),
    ("any", -32_000, "block 9 is after last accepted block 7", Behind),
    ("java-tron", -32_602, "exceed max block range: 5000", Size(None)),
    ("java-tron", -32_005, "query returned more than 10000 results", Size(None)),
    ("java-tron", -32_005, "Batch size 101 exceeds the limit of 100", Transient),
    ("java-tron", -32_003, "Response exceeds the limit of 26214400", Size(None)),
    ("java-tron", -32_602, "invalid blockHash", Behind),
    ("java-tron", -32_602, "TAG safe not supported", Transient),
    ("nethermind", -32_005, "Too many logs requested. Max logs per response is 20000.", Size(None)),
    ("reth", -32_602, "query exceeds max block range 100000", Size(None)),
    (
        "reth",
        -32_602,
        "query exceeds max results 20000, retry with the range 100-110",
        Size(Some((100, 110))),
    ),
    ("geth", -32_000, "query timeout exceeded", Size(None)),
    ("geth", -32_002, "request timed out", Timeout),
    ("geth", -32_602, "block range extends beyond current head block", Behind),
    ("geth", -32_000, "unknown block", Behind),
    ("geth", -32_000, "header not found", Behind),
    ("geth", -32_000, "context deadline exceeded", Timeout),
    ("geth", 4444, "pruned history unavailable", Pruned),
    ("geth", -32_000, "history has been pruned for this block", Pruned),
    ("geth", -32_000, "missing trie node 0f1e (path ) state is not available", Transient),
    ("any", 4444, "old data is gone", Pruned),
    ("nethermind", -32_001, "Receipt not available for From block 12.", Pruned),
    ("erigon", -32_000, "old data not available due to pruning", Pruned),
    ("erigon", -32_000, "block 12 is pruned", Pruned),
    ("any", -32_000, "requested block 0x10 is not available", Behind),
    ("any", -32_601, "the method eth_getLogs does not exist/is not available", Fatal),
    ("any", -32_601, "nope", Fatal),
    ("any", -32_603, "internal error", Transient),
];

/// Tron's own form of a refusal, with HTTP status 200.
pub const TRON_REFUSAL: &str =
    r#"{"Error":"exceeds the user daily usage: lack of computing resources"}"#;
/// Answer of a Tron node to requests of a disabled interface, with HTTP status 200.
pub const TRON_SENTENCE: &str = "this API is closed because this node is a lite fullnode";
