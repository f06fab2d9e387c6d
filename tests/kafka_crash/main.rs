//! The processor dies at every point of a step, on a real broker. What it wrote in the end is what a
//! pure fold of its machines over the committed input writes.
//!
//! [`load`] is a shop that trades; [`child`] a processor as a process that can be made to wait at any
//! point of a step; [`installation`] starts, stops, freezes and kills them; [`verdict`] says whether
//! what is there is what must be, by [`oracle::fold`]. [`watched`] puts in the bugs that must be found.

mod broker;
mod child;
mod clock;
mod embedded;
mod installation;
mod kill;
mod load;
mod outage;
mod town;
mod verdict;
mod watched;

use schemas::Layout;

/// Two lanes a chain and four partitions of orders.
const LAYOUT: Layout = Layout { lanes: 2, orders: 4, webhooks: 1 };

/// The broker that all tests share.
fn shared_broker() -> String {
    let brokers = std::env::var_os("TIDEMARK_TEST_KAFKA");
    let brokers =
        brokers.expect("TIDEMARK_TEST_KAFKA is not set: run the tests by `cargo xtask test`");
    brokers.into_string().unwrap()
}
