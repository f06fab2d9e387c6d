//! Decisions of the API, without I/O or clock: validity of a request, the command it becomes, the
//! log record that answers it. Only the ids of `creation::fresh_id` are random.

pub(crate) mod arrival;
pub(crate) mod attach;
pub(crate) mod candidates;
pub(crate) mod catalog;
pub(crate) mod chain_health;
pub(crate) mod changes;
pub(crate) mod creation;
pub mod csv;
pub(crate) mod followed;
pub(crate) mod json;
pub mod judge;
pub(crate) mod limit;
pub(crate) mod new_order;
pub(crate) mod occasions;
pub(crate) mod outcome;
pub(crate) mod query;
pub(crate) mod resend;
pub(crate) mod return_url;
pub(crate) mod seen_transfer;
pub mod story;
pub mod survey;
pub(crate) mod unknown_field;
