//! The handlers, by caller. `router` maps paths to them.

pub(crate) mod admin;
pub(crate) mod checkout;
pub(crate) mod console;
pub(crate) mod health;
pub(crate) mod listing;
pub(crate) mod registry;
pub(crate) mod service;
pub(crate) mod user;
