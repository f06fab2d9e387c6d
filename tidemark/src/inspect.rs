//! Commands that inspect an installation, also while it runs: its history, its health and its alerts.

pub(crate) mod alerts;
pub(crate) mod doctor;
pub(crate) mod find;
pub(crate) mod replay;
pub(crate) mod status;

/// A remark on what could not be read, as a line of JSON.
fn note(remark: &str) -> String {
    serde_json::json!({ "kind": "note", "text": remark }).to_string()
}
