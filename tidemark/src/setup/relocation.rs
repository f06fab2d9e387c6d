//! `tidemark export` and `tidemark import`: an installation moves to other back ends, or to another layout, while none
//! of its processes runs.
//!
//! An export is the records that the log keeps, in one file per partition, the positions of groups, and the rows of the
//! tables. An import writes the records to the partitions of an empty log, and translates offsets: positions of groups,
//! of the tables, of sinks and of the processor's state. The inputs of each step are left out, as they are offsets of
//! records in another order.

mod dealing;
mod export;
mod files;
mod import;
mod lanes;
mod line;
mod manifest;
mod readings;
mod target;

use processor::machine::{matching, orders};
use processor::wire::Wire;
use schemas::Topic;

pub(crate) use self::export::export;
pub(crate) use self::import::import;

/// Prefix of the installation in the tables' origin during an import: no process starts on such tables.
pub(crate) const UNDER_WAY: &str = "import/";

/// Group of the projector, whose positions the tables also have.
const PROJECTOR: &str = projector::GROUP;
const DISPATCHER: &str = "webhooks.dispatcher";
const HERALD: &str = "webhooks.alerts";

fn groups() -> Vec<(&'static str, Vec<Topic>)> {
    let (deliverer, deliveries) = webhooks::deliverer_inputs();
    vec![
        ("ingest", vec![Topic::Chains]),
        (matching::State::GROUP, matching::State::INPUTS.to_vec()),
        (orders::State::GROUP, orders::State::INPUTS.to_vec()),
        (PROJECTOR, projector::TOPICS.to_vec()),
        (DISPATCHER, vec![Topic::Orders, Topic::TransfersUnknown]),
        (deliverer, deliveries),
        (HERALD, vec![Topic::Alerts, Topic::DeadLetters]),
    ]
}

/// `true` if the topic is not exported.
fn stays_behind(topic: Topic) -> bool {
    matches!(topic, Topic::MatchingSteps | Topic::OrdersSteps)
}
