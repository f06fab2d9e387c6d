//! What the api decides, without I/O, clock or randomness: is a request valid, which command does
//! it become, does a record of the log answer it.

pub(crate) mod catalog;
pub(crate) mod creation;
pub(crate) mod json;
pub(crate) mod new_order;
pub(crate) mod outcome;
pub(crate) mod query;
pub(crate) mod resend;
