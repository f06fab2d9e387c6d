//! A broker is killed and restarted under load.

use testkit::process::given_path;
use testkit::restarts;

/// Restarts a broker `count` times and prints recovery times.
pub(crate) fn run(count: usize) {
    let lib = given_path("TIDEMARK_TEST_KAFKA_LIB");
    let outcome = restarts::run(&lib, count, |restart, recovery| {
        println!("restart {restart}: steps again after {:.1} s", recovery.as_secs_f64());
    });
    println!("{count} restarts: {outcome:#?}");
}
