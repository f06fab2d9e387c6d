//! Commands that only read an installation, also while it runs: its history and its health.

pub(crate) mod alerts;
pub(crate) mod doctor;
pub(crate) mod find;
pub(crate) mod replay;
pub(crate) mod status;
