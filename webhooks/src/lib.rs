//! Delivers webhooks to merchants: signed POSTs, repeated until one is answered with 200 or none is left (spec 6).
//!
//! **Reads** `orders` and `transfers.unknown` (the dispatcher), `webhooks.dispatch`, `webhooks.retry.*`,
//! `webhooks.defer.*`, its changelog and `alerts` (the deliverer), `alerts` and `dead-letters` (the herald, which sends
//! alerts to operators). **Writes** `webhooks.dispatch`, `webhooks.attempts`, `webhooks.retry.*`, `webhooks.defer.*`,
//! `webhooks.changelog`, `webhooks.dead`, `alerts`, `dead-letters`.
//!
//! The schedule (spec 6.3.3, whose table can be read in two ways): at most 12 POSTs. The first goes out at once. After
//! failed attempt n (1 to 11) the next one follows 2^(n-1) seconds later, through the retry topic of that delay. After
//! failed attempt 12 the event is in `webhooks.dead`, and an operator can send it again (spec 6.3.4). A manual resend
//! is an event of its own and runs the whole schedule.
//!
//! An event whose receiver is busy or gives no answers is deferred through `webhooks.defer.*`. So is an event that
//! cannot be sent for a failure on this side: no route, no free file descriptor, name servers that do not answer. A
//! deferral is not an attempt. Deferrals are bounded while the receiver is down, or while a failure on this side
//! affects it but not other receivers (`schedule::decide_deferral`).
//! An event whose URL may not be called is in `webhooks.dead` at once.
//!
//! **Invariants** (9 and 12): each event is attempted at least once, unless its URL may not be called, or its receiver
//! is down or cannot be reached for about a day; at most 12 times, apart from repetitions after a crash; no retry
//! before it is due; and never after a newer one of its order, which is sent in its place. Exactly HTTP 200 is success,
//! whatever its body (spec 6.3.1). An offset is committed only in one step with the records that its attempt led to. A
//! slow receiver delays its own events alone. No address inside the operator's network is called unless configured.
//!
//! Deliberately not here: which events there are (the processor), the counters of spec 2.3 (the projector), requests
//! for manual resends (for an order, a new version of its record; for a transfer, a record that the api writes to
//! `webhooks.dispatch`), `Retry-After` (the schedule is the interface's, not the receiver's).

#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

mod alerts;
mod config;
mod error;
mod guard;
mod machine;
pub mod metrics;
mod runner;
mod sender;

pub use alerts::{AlertsConfig, Sink, SinkReport, test_sink};
pub use config::Config;
pub use error::Error;
pub use machine::announcement::{decide_order, decide_transfer, is_dust};
pub use machine::schedule::Answer;
pub use machine::tracker::{completed, without};
pub use runner::{
    Engine, deliverer_inputs, run_deliverer, run_dispatcher, run_herald, sinks_of, sinks_text,
};
pub use sender::probe;
