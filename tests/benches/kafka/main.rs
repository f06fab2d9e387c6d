//! The pipeline on Kafka, beside its ceiling (read and write without logic) and its peer (the same join
//! in Kafka Streams), on a broker of its own. Everything shares the cores of this machine.

mod broker;
mod live;
mod metered;
mod peer;
mod story;
mod tables;
mod worker;
mod workload;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if !worker::play(&arguments) {
        story::tell().await;
    }
}
