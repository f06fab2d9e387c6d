//! A proxy in front of the nodes of a chain with the known faults of endpoints, and an oracle that reads the chain
//! itself.
//!
//! **What it promises**, so that there is one truth to find (decision 69): a block that an endpoint serves is one of
//! the chain or, for a while, of a fork that the chain left, unless the endpoint is of another chain altogether for a
//! while. Of two endpoints at most one lies about a transaction, by inventing it or by leaving its log out, be it for a
//! moment, by serving a fork that grows, or by tags that are too young. A single endpoint does not lie: omitted logs
//! appear 5 s after the block, in chain time. A reorganisation is less deep than the confirmation depth. Any other
//! fault may hit any request at any time, and ends. Log indexes may differ: the identity of a transfer is its
//! transaction, its parties and its value.
//!
//! All choices are the caller's: equal seeds give equal faults. The proxy reads JSON as any client would, and shares no
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
