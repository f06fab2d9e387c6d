//! Inputs delivered to the machines, and their effects.

use processor::machine::{matching, orders};
use schemas::record::OrderCommand;

/// A delivered input with its effects. A list of them is in commit order.
#[derive(Debug, Clone)]
pub enum Delivered {
    Lane(matching::Input, Vec<matching::Effect>),
    Orders(OrderCommand, Vec<orders::Effect>),
}
