//! A proxy in front of the nodes of a chain with the known faults of endpoints, and an oracle that reads the chain
//! itself.
//!
//! **Rules for callers**, so that there is one truth to find (decision 69): a block that an endpoint serves is one of
//! the chain. For a while it may be one of a fork that the chain left, or the endpoint may serve another chain. At most
//! one of two endpoints lies about a transaction: it invents one, leaves out a log, if only briefly, serves a fork that
//! grows, or reports tags that are too young. A single endpoint does not lie: logs that it omits appear within 5 s of
//! their block, in chain time. A reorganisation is less deep than the confirmation depth. Any other fault may hit any
//! request at any time, and ends. Log indexes may differ: the identity of a transfer is its transaction, parties and
//! value.
//!
//! The caller makes all choices: equal seeds give equal faults. The proxy reads JSON as any client would, and shares no
//! code with ingest.

mod distort;
mod fault;
mod gate;
mod node_state;
mod proxy;
mod server;
mod verdict;
mod words;

pub use fault::{Behaviour, Fault, Numbering};
pub use gate::Gate;
pub use node_state::{NodeState, invented};
pub use proxy::{Kind, Proxy};
pub use verdict::{Booked, Claim, Ordered, Payment, Verdict};
pub use words::{Class, REFUSALS, TRON_REFUSAL, TRON_SENTENCE};
