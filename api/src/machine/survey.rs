//! Snapshot of an installation, as plain values.

use schemas::record::{Alert, Block, Held, StopScope};
use schemas::{Blockchain, OrderId, UnixMicros, UnixSeconds};
pub use store::Subject;

/// A chain that is configured, or was followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    pub blockchain: Blockchain,
    /// Number of configured endpoints; 0 for a chain that is not followed any more.
    pub endpoints: usize,
    /// The newest block that was scanned.
    pub head: Option<Block>,
    pub confirmed: i64,
    /// Time of the newest block in which some amount is confirmed.
    pub confirmed_at: Option<UnixSeconds>,
    pub finalized: i64,
    /// The cause of a halt, and its beginning.
    pub halt: Option<(String, UnixMicros)>,
    /// Transfers that endpoints disagree about.
    pub held: Vec<Held>,
    /// `true` if every endpoint has deleted blocks that were never scanned.
    pub has_gap: bool,
}

/// A consumer group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The stage, as `tidemark run` names it.
    pub stage: &'static str,
    pub name: &'static str,
    /// Upper bound of the number of unread records: on Kafka, transaction markers count too.
    pub lag: i64,
    /// Time at which the oldest of these records was appended.
    pub oldest: Option<UnixMicros>,
    /// Members, each with the number of its partitions; none where the log does not list members.
    pub members: Option<Vec<(String, usize)>>,
}

/// Pending orders.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Orders {
    pub pending: usize,
    /// `true` if there may be more pending orders than were counted.
    pub is_more: bool,
    pub oldest: Option<UnixSeconds>,
    /// An overdue order, and the number of overdue orders.
    pub overdue: Option<(OrderId, usize)>,
}

/// Webhooks that no receiver has acknowledged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Webhooks {
    /// Upper bound of the number that are being sent or wait for their next attempt: some may be completed. At most a
    /// fixed number per partition is counted.
    pub waiting: usize,
    /// Time at which the oldest of the waiting webhooks was announced.
    pub oldest: Option<UnixMicros>,
    /// Subjects of webhooks that were given up and not delivered since; `None` if the tables could not be read.
    pub dead: Option<Vec<Subject>>,
}

/// The file system of an embedded log and tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    pub folder: String,
    pub free_bytes: u64,
    pub all_bytes: u64,
}

/// State of the whole installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    pub at: UnixMicros,
    pub chains: Vec<Chain>,
    pub groups: Vec<Group>,
    /// Reason why the process of an embedded installation is not ready; none if it is, or if not checked.
    pub not_ready: Option<String>,
    /// `None` without tables.
    pub orders: Option<Orders>,
    pub webhooks: Webhooks,
    /// Number of records on `dead-letters`, including those that were put back.
    pub dead_letters: usize,
    /// Open alerts that no other part of the survey shows, the oldest first.
    pub alerts: Vec<Alert>,
    /// Emergency stops in force, in words.
    pub stops: Vec<String>,
    /// `None` where nothing is embedded.
    pub disk: Option<Disk>,
    /// Parts that could not be read, each with the reason.
    pub unknown: Vec<String>,
}

/// Id of an order or a transfer, as the key of its webhooks.
pub(crate) fn id_of(subject: Subject) -> String {
    match subject {
        Subject::Order(id) => id.to_string(),
        Subject::Transfer(id) => id.to_string(),
    }
}

/// Scope of a stop, in words.
pub fn stop_words(scope: StopScope) -> String {
    let what = scope.subject().unwrap_or_else(|| "everything".to_owned());
    let alone = scope.blockchain.map(|_| ", on this chain alone").unwrap_or_default();
    format!("{what} is stopped{alone}")
}
