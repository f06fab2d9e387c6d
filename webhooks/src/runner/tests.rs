//! The loops: turn by turn on a scripted log, and on their threads over the embedded log.

mod deliverer;
mod dispatcher;
mod engine;
mod fairness;
mod herald;
mod order;
mod pipeline;
mod receiver;
mod refused;
mod running;
pub(super) mod scripted;
