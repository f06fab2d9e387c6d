//! A broker is killed and started again under load.

use testkit::restarts;

use crate::broker;

/// Restarts a broker `count` times and prints what that cost.
pub(crate) fn run(count: usize) {
    let lib = broker::folder("TIDEMARK_TEST_KAFKA_LIB");
    let outcome = restarts::run(&lib, count, |restart, recovery| {
        println!("restart {restart}: steps again after {:.1} s", recovery.as_secs_f64());
    });
    println!("{count} restarts: {outcome:#?}");
}
