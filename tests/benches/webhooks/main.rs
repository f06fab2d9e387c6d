//! Both loops of webhooks on the embedded log, as `tidemark run` has them, and on Kafka, and receivers in another
//! process: deliveries a second beside a bare loop of HTTP requests, the time from an event to its 200, and bad
//! receivers' effect on good ones. Everything shares the cores of this machine.
//!
//! Every destination has a separate address within 127.0.0.0/8. The arguments `rates`, `kafka`, `fairness`, `refusing`
//! and `silent` (a million events for such a receiver) choose parts; without one, all run.
//! `TIDEMARK_BENCH_PERCENT` shortens them.

mod broker;
mod ceiling;
mod engine;
mod fairness;
mod lag;
mod million;
mod rates;
mod receivers;

use broker::Broker;
use engine::Engine;
use receivers::{Kind, Receivers};

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == [receivers::ROLE] {
        return receivers::serve().await;
    }
    let names = ["rates", "kafka", "fairness", "refusing", "silent"];
    let is_named = |name: &str| arguments.iter().any(|argument| argument == name);
    let is_wanted = |name: &str| is_named(name) || !names.iter().any(|name| is_named(name));
    let mut receivers = Receivers::start();
    println!(
        "webhooks, embedded log, dispatcher and deliverer; receivers and load on the same cores"
    );
    if is_wanted("rates") {
        rates::run(&mut receivers, &[1, 100, 10_000], Engine::start).await;
    }
    if is_wanted("kafka") {
        let mut broker = Broker::start();
        println!("  on Kafka, one broker on the same cores:");
        rates::run(&mut receivers, &[1, 100], || Engine::on(broker.log())).await;
    }
    if is_wanted("fairness") {
        fairness::run(&mut receivers).await;
    }
    if is_wanted("refusing") {
        million::run(&mut receivers, Kind::Refusing, "refuses").await;
    }
    if is_wanted("silent") {
        million::run(&mut receivers, Kind::Asleep, "is silent").await;
    }
}
