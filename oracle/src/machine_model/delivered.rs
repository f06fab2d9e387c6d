//! What the machines were given, and what they did with it.

use processor::machine::{matching, orders};
use schemas::record::OrderCommand;

/// An input that was delivered and what came of it, in the order of commits.
#[derive(Debug, Clone)]
pub enum Delivered {
    Lane(matching::Input, Vec<matching::Effect>),
    Orders(OrderCommand, Vec<orders::Effect>),
}
