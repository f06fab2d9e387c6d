//! Commands that only read an installation, also beside its processes: what happened, and whether it is well.

pub(crate) mod alerts;
pub(crate) mod doctor;
pub(crate) mod find;
pub(crate) mod replay;
pub(crate) mod status;
