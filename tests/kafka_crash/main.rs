//! The processor is killed at every point of a step, on a real broker. Its outputs equal those of a pure fold of its
//! machines over the committed input ([`oracle::verdict`]).
//!
//! [`installation`] starts, suspends and kills processors, which are the program `child` and can be held at
//! any point of a step; [`oracle::load`] trades meanwhile.

mod broker;
mod installation;
mod kill;
mod outage;
mod scenario;
mod webhooks;

use testkit::log_suite::on_kafka::CRASH_LAYOUT as LAYOUT;

const MATCHING: &str = "processor.matching";
const ORDERS: &str = "processor.orders";
/// Session time-outs in seconds; the second for tests where a slow member must keep its session.
const SESSION: u64 = 3;
const SLOW_SESSION: u64 = 6;
