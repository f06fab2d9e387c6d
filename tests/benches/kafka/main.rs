//! The pipeline on Kafka, beside its ceiling (read and write without logic) and its peer (the same join in Kafka
//! Streams), on a separate broker. Everything shares the cores of this machine.
//!
//! With the arguments `restarts <count>` a broker is killed and restarted under load instead; with `replay <transfers>`
//! the processor's rate is compared with that of a replay.

mod broker;
mod live;
mod metered;
mod peer;
mod replay;
mod restarts;
mod story;
mod tables;
mod worker;
mod workload;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["restarts", count] = arguments[..] {
        let count = count.parse().expect("a number of restarts");
        tokio::task::spawn_blocking(move || restarts::run(count)).await.expect("it ends well");
    } else if let ["replay", transfers] = arguments[..] {
        replay::run(transfers.parse().expect("a number of transfers")).await;
    } else if !worker::play(&arguments) {
        story::run().await;
    }
}
