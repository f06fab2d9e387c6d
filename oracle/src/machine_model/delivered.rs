//! Inputs that the machines were given, and their effects.

use processor::machine::{matching, orders};
use schemas::record::OrderCommand;

/// A delivered input and its effects, in the order of commits.
#[derive(Debug, Clone)]
pub enum Delivered {
    Lane(matching::Input, Vec<matching::Effect>),
    Orders(OrderCommand, Vec<orders::Effect>),
}
